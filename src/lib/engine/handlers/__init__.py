"""One handler per kind of request."""
