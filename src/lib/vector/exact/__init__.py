"""Exact nearest neighbours in memory: the search, the rows of a namespace, faster first passes."""
