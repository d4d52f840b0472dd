"""What plans have earned, by item, by plan and by day."""
