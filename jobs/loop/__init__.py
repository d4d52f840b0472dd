"""The loop: records in, features, models, plans, pushes, outcomes, the steward."""
