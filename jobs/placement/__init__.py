"""The placement service, and the refresh of what it knows."""
