"""The sources of `cachecast pull`; each has its reader in `jobs.ingest.sources`."""

from __future__ import annotations

from typing import Literal, get_args

SourceName = Literal[
    "rucio_traces",
    "rucio_files",
    "rucio_dumps",
    "atlas_popularity",
    "cms_aaa",
    "cmssw_pop",
    "cms_tracer",
    "xcache_gstream",
    "xcache_cinfo",
    "xrootd_fstream",
    "osdf_accesses",
    "osdf_log",
    "popularity_series",
]
"""Sources that are files at a path."""
ServerName = Literal["rucio_server"]
"""Sources that are servers; `--input` is the request."""

SOURCES: tuple[str, ...] = get_args(SourceName)
SERVERS: tuple[str, ...] = get_args(ServerName)

CATALOGUES = frozenset({"rucio_files", "rucio_dumps"})
"""Those of them that list files, and hold no accesses."""

IN_USE = "in-use"
"""The request for the datasets that are in use, by the accesses table."""

WITHOUT_SIZES = frozenset({"cms_tracer"})
"""Sources of accesses that do not state the sizes of files."""

OF_CACHES = frozenset({"xcache_gstream", "xcache_cinfo"})
"""Sources that are records of the caches themselves, with the bytes served from disk."""
