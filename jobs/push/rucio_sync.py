"""The configured Rucio: its server as a session, its caches as RSEs, its broker told what they hold."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

import pyarrow as pa

from features.errors import ConfigError
from features.names import parse_name
from jobs.push.targets import target
from jobs.settings.rucio import RucioSettings
from jobs.settings.tree import CacheSettings, Settings
from jobs.store.user_cache import user_cache
from prefetch.plan import Treatment, treatments
from prefetch.rucio import rse as rse_room
from prefetch.rucio.broker import Broker, BrokerAccess
from prefetch.rucio.names import Did, did_of_path
from prefetch.rucio.reported import Told
from prefetch.rucio.rse import RseCheck, RseDoor
from prefetch.rucio.session import Access, Session
from prefetch.rucio.sync import Sync, SyncSummary, changes
from prefetch.target import Held


@dataclasses.dataclass(frozen=True)
class RseSetUp:
    """What was done to make the RSE of `cache` safe; nothing where it was."""

    cache: str
    rse: str
    done: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Drift:
    """What a sync would tell Rucio; see `SyncSummary`."""

    cache: str
    rse: str
    held: int
    unnamed: int
    to_add: int
    to_remove: int


def session(rucio: RucioSettings) -> Session:
    """A session with the server that settings name. Raises ConfigError if they name none, or too little."""
    if not rucio.url:
        raise ConfigError("rucio.url", "no Rucio server is configured; set it to https://rucio.example.org")
    return Session(
        Access(
            url=rucio.url.rstrip("/"),
            auth_url=rucio.auth_url.rstrip("/"),
            auth_type=rucio.auth_type,
            account=rucio.account,
            vo=rucio.vo,
            ca_cert=rucio.ca_cert,
            username=rucio.username,
            password=rucio.password.get_secret_value(),
            client_cert=rucio.client_cert,
            client_key=rucio.client_key,
            client_proxy=rucio.client_proxy,
            timeout_s=rucio.timeout,
            attempts=rucio.attempts,
            tokens=user_cache("rucio-tokens"),
        )
    )


def sync(settings: Settings, *, cache: str, dry_run: bool, wait_s: int, recheck: bool) -> SyncSummary | Drift:
    """Tell Rucio what a cache got and lost since it was last told, and wait for its word; or count it."""
    chosen = settings.cache(cache)
    rse, broker = _rse(chosen), _broker(settings.rucio)
    held, n_unnamed = _held(_admitted(settings, target(chosen).inventory()))
    told = Told(settings.push.journal)
    if dry_run:
        what = changes(held, told.states(rse))
        return Drift(cache, rse, len(held) + n_unnamed, n_unnamed, len(what.add), len(what.remove))
    at = Sync(rse, told=told, broker=broker, session=session(settings.rucio))
    if recheck:
        at.recheck()
    at.tell(changes(held, told.states(rse)), now_s=time.time())
    return SyncSummary(cache, rse, len(held) + n_unnamed, n_unnamed, **at.confirm(wait_s=wait_s))


def set_up(settings: Settings, *, cache: str, prefix: str, algorithm: str) -> RseSetUp:
    """Make the RSE of a cache, or make it safe again."""
    chosen = settings.cache(cache)
    rse, door = _rse(chosen), None
    if chosen.kind == "xcache":
        at = urlsplit(chosen.url)
        door = RseDoor(at.hostname or "", at.port or 1094, prefix, algorithm)
    return RseSetUp(cache, rse, tuple(rse_room.set_up(session(settings.rucio), rse, door)))


def check(settings: Settings, *, cache: str | None) -> list[RseCheck]:
    """The checks of one cache's RSE, or of all that have one. Raises ConfigError if none has."""
    caches = list(settings.caches.values()) if cache is None else [settings.cache(cache)]
    rses = [one.rse for one in caches if one.rse] if cache is None else [_rse(caches[0])]
    if not rses:
        raise ConfigError("caches", "no cache has an RSE; set rse in caches/NAME.toml")
    at = session(settings.rucio)
    return [found for rse in rses for found in rse_room.check(at, rse)]


def _rse(cache: CacheSettings) -> str:
    if not cache.rse:
        raise ConfigError(f"caches.{cache.name}.rse", "this cache has no RSE; set its name, as XCACHE_PIC")
    return cache.rse


def _broker(rucio: RucioSettings) -> Broker:
    if not rucio.broker:
        raise ConfigError(
            "rucio.broker", "no broker is configured; set it to stomp://broker.example.org:61613"
        )
    return Broker(
        BrokerAccess(
            url=rucio.broker,
            topic=rucio.topic,
            username=rucio.broker_username,
            password=rucio.broker_password.get_secret_value(),
            ca_cert=rucio.ca_cert,
            timeout_s=rucio.timeout,
        )
    )


def _admitted(settings: Settings, inventory: Iterable[Held]) -> list[Held]:
    """What a cache holds, without what rules keep out of it: it leaves, and is read past the cache."""
    held = list(inventory)
    names = pa.array([file.name for file in held], pa.string())
    tiers = pa.array([parse_name(file.name).tier for file in held], pa.string())
    codes, _ = treatments(tuple(one.rule for one in settings.plan.rules), names, tiers)
    return [file for file, code in zip(held, codes.tolist(), strict=True) if code != Treatment.NEVER]


def _held(inventory: Iterable[Held]) -> tuple[list[Did], int]:
    """The DIDs of complete files, and the number of those that tell none."""
    dids = [did_of_path(file.name) for file in inventory if file.complete]
    named = [did for did in dids if did is not None]
    return named, len(dids) - len(named)
