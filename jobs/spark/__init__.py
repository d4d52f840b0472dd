"""The Spark session, and tables as DataFrames."""
