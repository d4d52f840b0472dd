"""What pushed files earned, and whether a day's plans were worth it."""
