"""Traffic: who gets the engine, and when to say no."""
