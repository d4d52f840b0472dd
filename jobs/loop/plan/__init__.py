"""The planning job: from predictions and a cache's state to its prefetch, pin and evict lists."""
