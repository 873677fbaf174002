"""One store per file, each the only place that knows its driver."""
