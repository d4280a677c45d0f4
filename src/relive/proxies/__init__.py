"""The recording proxies: before a service (ingress) and behind it (egress), and what both have."""
