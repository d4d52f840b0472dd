"""Ground floor: what an access, a file and a feature are. Plain Python; Spark only in `features.spark`."""
