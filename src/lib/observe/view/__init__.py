"""Traces for people: a tree or a waterfall for a terminal, and a page for a browser."""
