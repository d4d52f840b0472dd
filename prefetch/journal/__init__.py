"""Plan items and receipts, kept so that a crash loses and repeats nothing."""
