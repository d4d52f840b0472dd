"""The Spark session, tables as DataFrames, and the code that Spark's executors need."""
