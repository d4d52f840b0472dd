"""Rucio: a session with its server, and what it is told of the caches."""
