"""Pure pieces that two or more packages need; no domain words, no I/O."""
