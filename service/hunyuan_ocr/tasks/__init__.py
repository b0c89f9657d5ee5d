"""Tasks: what can be asked of a page, how it is asked, how answers are read."""
