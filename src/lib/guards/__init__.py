"""Checks of what models read, say and do: what a guard is, and those that come with the library."""
