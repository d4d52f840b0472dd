"""Gradient-boosted trees as compiled code, so that a replay can follow a learned order."""
