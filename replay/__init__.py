"""Replay of real accesses: traces, caches, bounds, and the Planner protocol. No Spark, no network."""
