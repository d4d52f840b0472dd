"""Trained models in use: bundles, the spool, MLflow, scoring, and drift."""
