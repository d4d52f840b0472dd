"""The steward of a live cache: follows what the cache reports, and evicts in our order before XCache does."""
