"""Shared tables, names, units, times and errors, in plain Python."""
