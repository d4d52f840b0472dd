"""`cachecast site-test`: what a cache and its origins give to jobs, measured."""
