"""URLs of the forward-proxy form, taken apart: `root://cache:1094//root://origin:1094//store/f.root`.

A cache's own records hold the second half as a path, `/root:/origin:1094//store/f.root`; a user before the
host is dropped.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_SERVER = "/*(?:xroots?|roots?|https?|davs?):/+(?:[^/@]*@)?"
_FIRST = f"^{_SERVER}([^/@]+)/"
_SECOND = f"^{_SERVER}[^/@]+/+{_SERVER}([^/@]+)/"
_SERVERS = f"^(?:{_SERVER}[^/@]+){{1,2}}/+"


def first_host(url: Column) -> Column:
    """host:port that `url` names first; null for a plain path."""
    return _found(url, _FIRST, 1)


def cache_host(url: Column) -> Column:
    """host:port of the cache that `url` goes through; null if it names one server or none."""
    return F.when(origin_host(url).isNotNull(), first_host(url))


def origin_host(url: Column) -> Column:
    """host:port behind the cache that `url` goes through; null if it names one server or none."""
    return _found(url, _SECOND, 1)


def source_host(url: Column) -> Column:
    """host:port that the file comes from: behind the cache, or the only one; null for a plain path."""
    return F.coalesce(origin_host(url), first_host(url))


def plain_path(url: Column) -> Column:
    """`/store/f.root` of any of these forms; other names are given back as they are."""
    return F.regexp_replace(url, _SERVERS, "/")


def _found(url: Column, pattern: str, group: int) -> Column:
    return F.nullif(F.regexp_extract(url, pattern, group), F.lit(""))
