"""Learners, baselines and calibration: from feature rows to a calibrated model of one horizon."""
