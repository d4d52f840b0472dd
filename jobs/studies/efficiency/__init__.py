"""CPU efficiency of a site's own jobs, by where their data were."""
