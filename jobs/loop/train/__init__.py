"""Jobs from accesses to predictions: features, training, delivery of models, prediction, series forecasts."""
