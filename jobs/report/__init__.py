"""HTML pages and files of results: the site's report, the caching study, and what `--out` writes."""
