"""Taking commits: when, how, and making them durable."""
