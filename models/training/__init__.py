"""Measures learners and baselines on held-out days, and keeps the best LightGBM of each horizon."""
