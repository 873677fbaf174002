"""Where spans go: one sink per file."""
