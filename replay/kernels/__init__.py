"""Compiled loops over records. Nothing here knows of tables, planners or results."""
