"""A server for coding agents, which call castoff's verbs by the Model Context Protocol (MCP)."""
