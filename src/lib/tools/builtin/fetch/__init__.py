"""Guarded fetching: what may be reached, how it is reached, and how much of it is read."""
