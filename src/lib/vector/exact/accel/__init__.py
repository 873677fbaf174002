"""First passes that leave out rows which cannot be among the nearest; results stay the same."""
