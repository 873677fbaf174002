"""The console: one page, served by the server itself, that shows the log through `/v1`."""
