"""One vector contract, many stores: records, filters, exact and hybrid search."""

from __future__ import annotations
