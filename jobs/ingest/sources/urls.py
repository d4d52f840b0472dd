"""URLs of the forward-proxy form, taken apart: `root://cache:1094//root://origin:1094//store/f.root`.

A cache's own records hold the second half as a path, `/root:/origin:1094//store/f.root`; a user before the
host is dropped. Expressions of DuckDB, as in `jobs.ingest.sources.sql`.
"""

from __future__ import annotations

_USER = "(?:[^/@]*@)?"
_SERVER = f"(?:xroots?|roots?|https?|davs?):/+{_USER}"
_FIRST = f"^/*{_SERVER}([^/@]+)/"
_SECOND = f"^/*{_SERVER}[^/@]+/+{_SERVER}([^/@]+)/"
_SERVERS = f"^(?:/*{_SERVER}[^/@]+){{1,2}}/+"


def first_host(url: str) -> str:
    """host:port that `url` names first; null for a plain path."""
    return _found(url, _FIRST)


def cache_host(url: str) -> str:
    """host:port of the cache that `url` goes through; null if it names one server or none."""
    return f"CASE WHEN {origin_host(url)} IS NOT NULL THEN {first_host(url)} END"


def origin_host(url: str) -> str:
    """host:port behind the cache that `url` goes through; null if it names one server or none."""
    return _found(url, _SECOND)


def source_host(url: str) -> str:
    """host:port that the file comes from: behind the cache, or the only one; null for a plain path."""
    return f"coalesce({origin_host(url)}, {first_host(url)})"


def plain_path(url: str) -> str:
    """`/store/f.root` of any of these forms; other names are given back as they are."""
    return f"regexp_replace({url}, '{_SERVERS}', '/')"


def _found(url: str, pattern: str) -> str:
    """Group 1 of `pattern`. Without the user it is found in one pass, many times faster."""
    any_form, without_user = (
        f"regexp_extract({url}, '{form}', 1)" for form in (pattern, pattern.replace(_USER, ""))
    )
    return f"nullif(CASE WHEN contains({url}, '@') THEN {any_form} ELSE {without_user} END, '')"
