"""The cache servers that may send heartbeats, as configuration knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from features.common.errors import InputError


class Member(NamedTuple):
    """A configured cache: what its heartbeats stand for, whatever they say. `size_bytes`: its capacity."""

    site: str
    address: str
    size_bytes: int


Members = Mapping[str, Member]


def member(members: Members, cache: str, *, site: str | None, address: str | None) -> Member:
    """The configuration of `cache`; a heartbeat's `site` and `address` must agree. Raises InputError."""
    known = members.get(cache)
    if known is None:
        raise InputError(f"no cache server is called {cache!r} here; add caches/{cache}.toml and restart")
    for name, said, meant in (("site", site, known.site), ("address", address, known.address)):
        if said is not None and said != meant:
            raise InputError(f"{name} of {cache} is {meant} by configuration, and {said} by its heartbeat")
    return known
