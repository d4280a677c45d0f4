"""The server: REST, durable tasks, credentials, what was asked by whom."""
