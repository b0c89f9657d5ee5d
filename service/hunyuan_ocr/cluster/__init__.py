"""What a pod tells its cluster about itself; off unless it is given a token for that."""
