"""Questions that a planner asks. Each study can be deleted alone."""
