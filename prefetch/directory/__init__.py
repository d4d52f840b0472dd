"""A folder as a cache, for machines without XRootD."""
