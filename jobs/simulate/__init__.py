"""Replays, curves and studies of past accesses; generated workloads."""
