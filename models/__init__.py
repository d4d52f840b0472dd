"""Models that predict re-access: training, calibration, scoring, and their MLflow records."""
