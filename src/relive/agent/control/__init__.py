"""The agent as a process: its control socket, and the processes that it supervises."""
