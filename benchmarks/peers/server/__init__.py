"""Applications that serve agents, each in a process of its own."""
