"""Forecasts of a popularity series: accesses per dataset and day or week, read from a CSV file."""
