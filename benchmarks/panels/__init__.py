"""The boards over a real Prometheus."""
