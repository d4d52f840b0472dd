"""Rucio: a session with its server, and what is reported to it about the caches."""
