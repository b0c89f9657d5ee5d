"""What other load generators are given, so that they send what this one does."""
