"""Sinks of spans: one per file."""
