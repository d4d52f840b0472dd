"""The placement service: answers Rucio, caches and batch systems which site and server hold what."""
