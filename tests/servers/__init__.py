"""Real servers for tests, started when a test first asks for one."""
