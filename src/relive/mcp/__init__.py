"""Relive for LLM agents: the operations as tools of the Model Context Protocol, over stdio or streamable HTTP."""
