"""Detecting failures of a service, and keeping what is known of them."""
