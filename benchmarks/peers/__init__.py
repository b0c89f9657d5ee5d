"""What others put in front of an engine, for comparison."""
