"""Readers of what brokers answer; each gives entries in the form of `queue_entries`, or why there is none."""
