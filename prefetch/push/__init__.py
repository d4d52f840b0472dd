"""Carrying out a journal: limits, retries, origins, pins."""
