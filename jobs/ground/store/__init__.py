"""Tables of Parquet files with atomic commits, on a local folder, HDFS or S3; locks and leases."""
