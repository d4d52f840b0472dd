"""Metrics, rivals in replay, and the decision about a champion."""
