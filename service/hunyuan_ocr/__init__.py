"""OCR over HTTP: HunyuanOCR on vLLM behind a sidecar that prepares, admits and answers."""
