"""Incidents: what is kept of a failure, and the index that finds it."""
