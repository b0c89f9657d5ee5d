"""Documents: what people send, and the pixels the engine sees."""
