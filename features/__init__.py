"""Shared tables, names, units, times and errors, in plain Python; Spark only in `features.spark`."""
