"""What `benchmarks/export.py` compares with, and the backend to which all of them post."""
