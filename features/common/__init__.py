"""What every room stands on: errors, units, times, names, files and array types."""
