"""Jobs that read raw access records into the tables: pull, the collector of caches, the queue of jobs."""
