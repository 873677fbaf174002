"""The client: tools of MCP servers in the hands of agents, which trust none of them."""
