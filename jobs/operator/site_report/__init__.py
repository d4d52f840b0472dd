"""The report of a site, from its tables."""
