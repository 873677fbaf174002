"""Shared by the clients of all model servers: URLs, headers, event streams, fields."""
