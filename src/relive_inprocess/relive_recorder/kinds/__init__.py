"""One file for each thing that is recorded; each offers ``install()``."""
