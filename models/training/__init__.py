"""A region's training: all horizons, compared and recorded."""
