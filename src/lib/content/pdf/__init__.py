"""PDF to text, in a process of its own that can be ended."""
