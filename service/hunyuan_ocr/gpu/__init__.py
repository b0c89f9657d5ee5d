"""What the GPU's sensors say: the probe beside vLLM writes it, the service reads it."""
