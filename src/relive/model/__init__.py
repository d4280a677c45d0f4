"""Plain values that travel between the rooms; nothing here acts."""
