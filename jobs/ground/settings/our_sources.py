"""The sources that cachecast brings, and where each is defined; `setup.py` lists them as entry points.

This file imports nothing, as `setup.py` runs it. A checkout needs no entry points of its own.
"""

GROUP = "cachecast.sources"  # the entry points of sources, those of other packages too
_MODULES = (
    *("rucio_traces", "rucio_files", "rucio_dumps", "atlas_popularity", "cms_tracer", "xcache_gstream"),
    *("xcache_cinfo", "xrootd_fstream", "osdf_accesses", "osdf_log", "pelican", "popularity_series"),
    *("htcondor_history", "wmarchive", "panda_jobs"),
)
OURS = {name: f"jobs.loop.ingest.sources.{name}:SOURCE" for name in _MODULES} | {
    "cms_aaa": "jobs.loop.ingest.sources.cms:AAA",
    "cmssw_pop": "jobs.loop.ingest.sources.cms:POPULARITY",
}
