"""The configured caches: how they are reached, and what they hold."""
