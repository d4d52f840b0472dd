"""Replays of a trace or of the site's tables: policies, fleets, LRU curves and the caching study."""
