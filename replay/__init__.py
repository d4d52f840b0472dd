"""Replay of real accesses through simulated caches: traces, policies, bounds. No Spark, no network."""
