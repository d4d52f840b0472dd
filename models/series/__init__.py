"""Forecasts of plain popularity series."""
