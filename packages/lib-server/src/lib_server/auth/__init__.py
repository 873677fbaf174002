"""Callers of the server: API keys in the event store, and JSON Web Tokens of an issuer."""
