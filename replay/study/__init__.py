"""The DOMA caching study of a trace, as numbers: what is read again, and what a cache would save."""
