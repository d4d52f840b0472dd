"""The placement service: which site and which server hold what, told to Rucio, caches and batch systems."""
