"""The target of pushes to a configured cache."""

from __future__ import annotations

from pathlib import Path

from features.common.errors import ConfigError
from jobs.settings.tree import CacheSettings
from prefetch.directory.cache import DirectoryTarget
from prefetch.target import CacheTarget
from prefetch.xcache import server
from prefetch.xcache.client import XCacheTarget


def target(cache: CacheSettings, *, walks_apart: bool = False) -> CacheTarget:
    """The target of `cache`; `walks_apart`: see `XCacheTarget`. ConfigError if settings are missing."""
    if cache.kind == "directory":
        if cache.origin is None:
            raise ConfigError(
                f"caches.{cache.name}.origin", "a directory cache needs the folder of its origin"
            )
        return DirectoryTarget(cache.name, cache.origin, Path(cache.url))
    if cache.keytab is not None:
        server.use_keytab(cache.keytab, f"caches.{cache.name}.keytab")
    return XCacheTarget(
        cache.name,
        cache.url,
        cache.namespace,
        cache.gstream,
        spaces=cache.spaces,
        walks_apart=walks_apart,
    )
