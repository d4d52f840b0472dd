"""What a cache calls a file: the path at which it has, or would have, the file of a DID."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray
from features.common.errors import ConfigError
from jobs.ground.caches.inventory import last
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.settings.values import PREFIX
from jobs.ground.store.tables import Tables
from prefetch.lfn import Did, place_of

_MOST_LOOKED_AT = 1000
_PLAIN = re.compile(PREFIX)
_BY_HASH = ""  # the kind of all names that lie by hash


class Paths:
    """The paths of files in `cache`; `held`: the DIDs of what it holds, by path.

    A file that it does not hold would lie below a prefix. If its name is a path, that is the prefix of most
    held files of its scope, or none. Else it lies by Rucio's hash, below the prefix of the settings, or of
    most held files. A prefix that the settings would refuse is not learned.
    """

    def __init__(self, cache: CacheSettings, held: Mapping[str, str]) -> None:
        self._cache = cache
        self._dids, self._paths = pa.array(held.values(), pa.string()), pa.array(held, pa.string())

    @classmethod
    def last(cls, tables: Tables, cache: CacheSettings, *, at_s: int) -> Paths:
        """By the cache's last inventory until `at_s`."""
        held = last(tables, cache.name, at_s=at_s)
        return cls(cache, dict(zip(held["name"].to_pylist(), held["did"].to_pylist(), strict=True)))

    def of(self, dids: pa.Array) -> pa.Array:
        paths = self.known(dids)
        unknown = dids.filter(pc.is_null(paths))
        if len(unknown):
            raise ConfigError(
                f"caches.{self._cache.name}.prefix",
                f"no path is known for {str(unknown[0])[:200]!r}: the cache holds no file by Rucio's hash "
                "naming yet; set what comes before the scope in its paths, for example /atlas/rucio",
            )
        return paths

    def did_at(self, path: str) -> str | None:
        """The DID of the file that is held at `path`; None if there is none."""
        dids = self._dids.filter(pc.equal(self._paths, path))
        return str(dids[0]) if len(dids) else None

    def is_anothers(self, dids: pa.Array, paths: pa.Array) -> BoolArray:
        """Which of `dids` would be at a path of another file: a held one, or one before it in `dids`."""
        holder = self._dids.take(pc.index_in(paths, value_set=self._paths))
        is_taken: BoolArray = np.array(pc.fill_null(pc.not_equal(holder, dids), False))
        others = np.flatnonzero(~is_taken)
        codes = paths.take(pa.array(others)).dictionary_encode().indices.to_numpy()
        is_taken[np.delete(others, np.unique(codes, return_index=True)[1])] = True
        return is_taken

    def known(self, dids: pa.Array) -> pa.Array:
        """The path of each of `dids`, null where the prefix is not known."""
        paths = self._paths.take(pc.index_in(dids, value_set=self._dids))
        is_absent = pc.is_null(paths)
        absent = list[str | None]()
        for did in map(_did, dids.filter(is_absent).to_pylist()):
            prefix = self._prefixes.get(_kind(did), "" if _kind(did) else None)
            absent.append(None if prefix is None else prefix + place_of(did))
        return pc.replace_with_mask(paths, is_absent, pa.array(absent, pa.string()))

    @functools.cached_property
    def _prefixes(self) -> Mapping[str, str]:
        counts = defaultdict[str, Counter[str]](Counter)
        step = 1 + len(self._paths) // _MOST_LOOKED_AT
        for path, text in zip(self._paths[::step].to_pylist(), self._dids[::step].to_pylist(), strict=True):
            did = _did(text)
            if path.endswith(place := place_of(did)):
                prefix = path.removesuffix(place)
                # Below the name of a server lie the files that somebody else's server has.
                counts[_kind(did)][prefix] += _PLAIN.fullmatch(prefix) is not None
        most = {kind: counted.most_common(1)[0] for kind, counted in counts.items()}
        learned = {kind: prefix for kind, (prefix, n) in most.items() if n}
        return learned if self._cache.prefix is None else learned | {_BY_HASH: self._cache.prefix}


def _kind(did: Did) -> str:
    """What decides a name's prefix: the scope of a name that is a path; `_BY_HASH` for all others."""
    return did.scope if did.name.startswith("/") else _BY_HASH


def _did(text: str) -> Did:
    scope, _, name = text.partition(":")
    return Did(scope, name)
