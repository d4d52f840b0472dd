"""Learners, baselines, calibration, and the fit of one model."""
