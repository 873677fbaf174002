"""What the wires of all providers share: HTTP with bounds and a deadline, and event streams."""
