"""MCP servers to test the client on: a friendly one of the SDK, and a hostile one."""
