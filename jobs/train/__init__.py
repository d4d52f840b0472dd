"""Features, labels, trainings, predictions and forecasts."""
