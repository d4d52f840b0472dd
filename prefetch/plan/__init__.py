"""What to place where: the planner that production and replay share, its limits, rules and value."""
