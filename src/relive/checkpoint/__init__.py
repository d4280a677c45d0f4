"""Commit engines. So far one: CRIU, driven through its RPC."""
