"""The peers of `benchmarks/export.py`, and the backend to which all of them post."""
