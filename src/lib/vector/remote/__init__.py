"""Model servers over HTTP: what their embedders and rerankers share, and one file per vendor."""
