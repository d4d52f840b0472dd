"""The service that evicts from a cache in our order."""
