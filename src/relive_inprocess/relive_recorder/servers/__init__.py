"""Requests that come in: one file for each way in which Python servers take them; each offers ``install()``."""
