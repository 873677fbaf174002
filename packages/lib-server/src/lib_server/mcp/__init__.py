"""The Model Context Protocol over HTTP, without sessions."""
