"""The table store: snapshots, commits, locks, file systems."""
