"""Per capsule: starting it, watching it, committing it, and taking commands for it."""
