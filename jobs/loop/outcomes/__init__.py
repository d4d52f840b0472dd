"""Outcomes of pushed plans, by item, by plan and by day."""
