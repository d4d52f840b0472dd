"""What every room stands on: tables, settings, caches, Spark, words."""
