"""What each pushed file and each day of plans saved or cost, measured from the accesses that followed."""
