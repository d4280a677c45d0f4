"""Units of systemd: reading their files, asking systemctl, and the drop-in that has a service run under ``relive run``."""
