"""Embedders: `LSAEmbedder` needs no model and no network, `OpenAIEmbedder` asks a server."""
