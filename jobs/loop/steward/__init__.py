"""The steward: a service that evicts files from a cache in the order that cachecast chooses."""
