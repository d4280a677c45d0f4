"""The kernel as Relive calls it: thin typed wrappers over system calls and /proc. No decisions are made here."""
