"""The whole service on one machine, as ordinary processes: `cachecast up` and `cachecast down`."""
