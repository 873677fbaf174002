"""What an application holds: the engine, handles on runs, sessions and turns, workers, checks."""
