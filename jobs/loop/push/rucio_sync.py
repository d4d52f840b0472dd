"""Steps `rucio sync`, `setup` and `check`: the caches as RSEs of the configured Rucio."""

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ConfigError
from features.common.names import tiers_of
from features.common.times import DAY_S, day_label
from features.schema import CONTENTS
from jobs.ground.caches.inventory import check_withdrawals, verified
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.sources import RucioSettings
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.catalogue import session
from jobs.loop.ingest.known_names import dids_of
from jobs.loop.ingest.sources.urls import GUESSED
from prefetch.lfn import Did
from prefetch.plan.rules import Treatment, treatments
from prefetch.rucio import rse as rse_room
from prefetch.rucio.broker import Broker, BrokerAccess
from prefetch.rucio.rse import ReplicaChanges, ReportedReplicas, RseCheck, RseDoor, Sync, SyncSummary, changes
from prefetch.target import Held


@dataclasses.dataclass(frozen=True)
class ReplicaDrift:
    """What a sync would report to Rucio; see `SyncSummary`."""

    cache: str
    rse: str
    held: int
    unnamed: int
    to_add: int
    to_remove: int


def sync(
    settings: Settings, *, cache: str, dry_run: bool, wait_s: int, recheck: bool, force: bool = False
) -> SyncSummary | ReplicaDrift:
    """Report a cache's changes to Rucio, and wait until it confirms them; raises as `check_withdrawals`."""
    configured = settings.cache(cache)
    rse, broker = _rse(configured), _broker(settings.rucio)
    with contextlib.closing(ReportedReplicas(settings.push.journal)) as reported:
        inventory = _inventory(settings, configured, reported.states(rse))
        tables = Tables.of(settings)
        dids = dids_of(tables, inventory, settings.names.scopes, configured.prefix)
        inventory = _admitted(settings, inventory, dids)
        complete = [_did(dids[file.name]) for file in inventory if file.complete]
        held = [did for did in complete if did is not None]
        n_unnamed = len(complete) - len(held)
        unreadable = [did for file in inventory if file.unreadable and (did := _did(dids[file.name]))]

        def pending() -> ReplicaChanges:
            states = reported.states(rse)
            pending_changes = changes(held, states, unreadable)
            if not force:
                n_reported = sum(state != "unknown" for state in states.values())
                share, n_removed = settings.rucio.withdraw_share, len(pending_changes.remove)
                check_withdrawals(n_removed, n_reported, rse=rse, share=share)
            return pending_changes

        if dry_run:
            drift = pending()
            return ReplicaDrift(cache, rse, len(complete), n_unnamed, len(drift.add), len(drift.remove))
        reporting = Sync(rse, reported=reported, broker=broker, session=session(settings.rucio))
        if recheck:
            reporting.recheck(_held_lately(tables, configured.name))
        reporting.report(pending(), now_s=time.time())
        return SyncSummary(cache, rse, len(complete), n_unnamed, **reporting.confirm(wait_s=wait_s))


def set_up(settings: Settings, *, cache: str, prefix: str, algorithm: str) -> dict[str, object]:
    """Make the RSE of `cache`, or make it safe again; `prefix`, `algorithm`: of its files' paths.

    `done`: the changes that made it safe; none if it was.
    """
    configured = settings.cache(cache)
    rse, door = _rse(configured), None
    if configured.kind == "xcache":
        door = RseDoor(*configured.door, prefix, algorithm)
    done = tuple(rse_room.set_up(session(settings.rucio), rse, door))
    return {"cache": cache, "rse": rse, "done": done}


def check(settings: Settings, *, cache: str | None) -> list[RseCheck]:
    """The checks of one cache's RSE, or of all that have one. Raises ConfigError if none has."""
    caches = list(settings.caches.values()) if cache is None else [settings.cache(cache)]
    rses = [configured.rse for configured in caches if configured.rse] if cache is None else [_rse(caches[0])]
    if not rses:
        raise ConfigError("caches", "no cache has an RSE; set rse in caches/NAME.toml")
    client = session(settings.rucio)
    return [result for rse in rses for result in rse_room.check(client, rse)]


def _rse(cache: CacheSettings) -> str:
    if not cache.rse:
        raise ConfigError(f"caches.{cache.name}.rse", "this cache has no RSE; set its name, like XCACHE_PIC")
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


def _inventory(settings: Settings, cache: CacheSettings, reported: Mapping[Did, str]) -> list[Held]:
    dids = [f"{did.scope}:{did.name}" for did, state in reported.items() if state == "there"]
    tables, now_s = Tables.of(settings), int(time.time())
    names = Paths.last(tables, cache, at_s=now_s).known(pa.array(dids, pa.string())).drop_null().to_pylist()
    return verified(settings, cache, at_s=now_s, reported=names).held


def _held_lately(tables: Tables, cache: str) -> set[Did]:
    """What `cache` held in the last week, by its inventories."""
    head, since_s, dids = tables.head(CONTENTS), int(time.time()) - 7 * DAY_S, pa.array([], pa.string())
    for key in head.select(since=day_label(since_s), owner=cache):
        dids = pc.unique(pa.chunked_array([dids, *head.rows_of([key], ["did"])["did"].chunks]))
    return {did for text in dids.to_pylist() if (did := _did(text)) is not None}


def _admitted(settings: Settings, held: Sequence[Held], dids_by_name: Mapping[str, str]) -> list[Held]:
    """The inventory without test files and files that rules keep out: jobs read those directly."""
    dids = pa.array([dids_by_name[file.name] for file in held], pa.string())
    tiers = tiers_of(pa.array([file.name for file in held], pa.string()))
    codes, _ = treatments(settings.plan.planned_by, dids, tiers)
    left_out = (Treatment.NEVER, Treatment.TEST)
    return [file for file, code in zip(held, codes.tolist(), strict=True) if code not in left_out]


def _did(text: str) -> Did | None:
    """A DID as Rucio knows it; None where only a path is known, or it is the second path of a file."""
    scope, _, name = text.partition(":")
    is_guess = scope in GUESSED or (scope == "cms" and not name.startswith("/store/"))
    return None if is_guess else Did(scope, name)
