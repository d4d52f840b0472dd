"""The kinds of records that `cachecast pull` reads; each has its reader in `jobs.ingest.sources`."""

from __future__ import annotations

SOURCES = (
    *("rucio_traces", "rucio_files", "rucio_dumps", "atlas_popularity", "cms_aaa", "cmssw_pop"),
    *("xcache_gstream", "xcache_cinfo", "xrootd_fstream", "osdf_accesses", "osdf_log", "popularity_series"),
)
"""Sources that are read: files at a path."""

SERVERS = ("rucio_server",)
"""Sources that are asked: `--input` names what to ask for."""

OF_CACHES = frozenset({"xcache_gstream", "xcache_cinfo"})
"""Sources in which caches themselves report what they had on disk."""
