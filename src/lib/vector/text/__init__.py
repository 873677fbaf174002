"""Words: how a text becomes terms, how terms rank texts, how rankings are fused."""
