"""Measures learners and baselines on held-out days, and keeps the best learner of each horizon."""
