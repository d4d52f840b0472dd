"""Jobs that carry out plans: push lists to caches, prefill for queued jobs, report replicas to Rucio."""
