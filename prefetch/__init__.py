"""What to place where, and getting it there: planner, journal, push, cache targets, outcomes. No Spark."""
