"""Embedders: `LSAEmbedder` needs no model and no network, the others ask a model or a server."""
