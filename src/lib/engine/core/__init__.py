"""The functional core: what a log means and what comes next. No clock, no I/O, no randomness."""
