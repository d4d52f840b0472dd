"""Settings: one tree of frozen sections, one loader."""
