"""The published tables of HunyuanOCR's speed, redone with weights of its shape."""
