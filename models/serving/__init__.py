"""A region's models as a bundle: stored, checked, loaded, scored with."""
