"""The configured caches: their targets and inventories."""
