"""A second, closer look at what a search has found."""
