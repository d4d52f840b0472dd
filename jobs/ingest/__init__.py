"""Records into the tables: pulls, scans, the collector, queues of jobs."""
