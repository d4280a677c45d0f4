"""The recording reverse proxy: what clients ask a service."""
