"""The parts that an application holds: engine, runs, sessions, turns, workers, checks."""
