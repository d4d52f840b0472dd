"""The steps of the loop as settings configure them: what commands, DAGs and the demo run.

A step finds its values in `Settings`, gives them to its job, and knows nothing else. Heavy imports wait for
the step that needs them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from features.errors import ConfigError, InputError
from features.times import as_of_label
from jobs.cli.console import Advance
from jobs.settings.tree import Settings
from jobs.store.tables import Snapshot, Tables

if TYPE_CHECKING:
    from jobs.ingest.input import PullSummary
    from jobs.ingest.scan import ScanSummary
    from jobs.outcomes.items import OutcomeSummary
    from jobs.plan.cache_state import Moment
    from jobs.plan.plan import PlanSummary
    from jobs.simulate.workload import WorkloadSummary
    from jobs.train.forecast import ForecastSummary, HorizonQuality
    from prefetch.journal.journal import Journal
    from prefetch.plan.explain import Explanation


@dataclasses.dataclass(frozen=True)
class Written:
    """A table after a step: its rows at the as_ofs asked for, and the snapshot that holds them."""

    table: str
    as_ofs: int
    rows: int
    snapshot: str


@dataclasses.dataclass(frozen=True)
class Unlocked:
    """The pull that held the lock of `tables` until it was broken; None: nobody did."""

    tables: str
    held_by: str | None


def workload(
    settings: Settings,
    *,
    scenario: str,
    conf: Path | None,
    start_s: int | None,
    seed: int,
    days: int | None,
    accesses: int | None,
    scale: float | None,
    out: Path,
    raw: bool,
    report: bool,
    pull_too: bool,
    on_progress: Advance,
) -> WorkloadSummary:
    """Generate accesses; `conf` is a folder that may hold scenarios of its own in `workloads/`.

    `pull_too` writes raw files and pulls them, dated to their first day.
    """
    from jobs.simulate.workload import load, run

    own = None if conf is None else conf / "workloads" / f"{scenario}.toml"
    chosen = str(own) if own is not None and own.is_file() else scenario
    config = load(chosen, start_s=start_s, seed=seed, days=days, scale=scale, accesses=accesses)
    made = run(config, out=out, raw=raw or pull_too, report=report, on_progress=on_progress)
    if pull_too:
        for source, path in (("rucio_traces", made.traces), ("rucio_files", made.catalogue)):
            pull(settings, source=source, path=path, day_s=config.start_s)
    return made


def pull(settings: Settings, *, source: str, path: str, day_s: int, new_only: bool = False) -> PullSummary:
    """Merge raw records into the tables; of inputs pulled before, with `new_only`, only what changed.

    The collector's captures are then deleted `[collect] keep` before `day_s`: they are in the tables.
    """
    from jobs.ingest import captures
    from jobs.ingest import incremental as new_inputs
    from jobs.ingest import input as job
    from jobs.ingest.sources import SERVERS
    from jobs.spark.session import spark_session

    if source in SERVERS:
        return _pull_from_server(settings, source=source, path=path, day_s=day_s, new_only=new_only)
    spark, tables = spark_session(settings.spark), Tables(settings.tables.root)
    summary = job.run(
        spark,
        tables,
        source=source,
        path=path,
        day=dt.datetime.fromtimestamp(day_s, dt.UTC).date(),
        salt=settings.users.salt.get_secret_value(),
        caches=settings.sources.cache_hosts,
        take=new_inputs.only_new if new_only else job.everything,
    )
    if source != "xcache_gstream" or not new_only:
        return summary
    taken = new_inputs.taken(spark, tables, source=source, path=path)
    removed = captures.remove(taken, before_s=day_s - settings.collect.keep)
    return dataclasses.replace(summary, **removed._asdict())


def _pull_from_server(
    settings: Settings, *, source: str, path: str, day_s: int, new_only: bool
) -> PullSummary:
    from jobs.ingest.catalogue import run
    from jobs.push.rucio_sync import session
    from jobs.spark.session import spark_session

    if new_only:
        raise InputError(
            f"--new-only leaves out files that were read before; {source} is asked anew each time"
        )
    rucio = session(settings.rucio)
    return run(
        spark_session(settings.spark),
        Tables(settings.tables.root),
        session=rucio,
        path=path,
        day=dt.datetime.fromtimestamp(day_s, dt.UTC).date(),
        in_use_days=settings.rucio.in_use // 86400,
    )


def scan(
    settings: Settings, *, namespace: Path | None, spaces: Sequence[Path], cache: str, as_of_s: int | None
) -> ScanSummary:
    """Take a cache's inventory and accesses from its namespace; without `as_of_s` as of now.

    `namespace` and `spaces` are those of the cache's settings where they are not given. Raises ConfigError.
    """
    from jobs.ingest.scan import run
    from jobs.spark.session import spark_session

    if namespace is None:
        known = settings.cache(cache)
        namespace, spaces = known.namespace, spaces or known.spaces
    if namespace is None:
        raise ConfigError(f"caches.{cache}.namespace", "is not there; name it, or give --namespace")
    return run(
        spark_session(settings.spark),
        Tables(settings.tables.root),
        namespace=namespace,
        spaces=spaces,
        cache=cache,
        as_of_s=int(time.time()) if as_of_s is None else as_of_s,
    )


def unlock(settings: Settings) -> Unlocked:
    """Break the lock of pulls."""
    tables = Tables(settings.tables.root)
    return Unlocked(tables.root, tables.unlock("pull"))


def features(settings: Settings, *, as_ofs: Sequence[int], sample_share: float = 1.0) -> Written:
    """Compute the features at `as_ofs`, or of a sample of their candidates."""
    from jobs.spark.session import spark_session
    from jobs.train.features import run

    spec, region = settings.features.spec, settings.region.name
    spec = dataclasses.replace(spec, sample_share=sample_share)
    on_grid(as_ofs, spec.cycle_s)
    tables = Tables(settings.tables.root)
    snapshot = run(
        spark_session(settings.spark),
        tables,
        spec=spec,
        region=region,
        as_ofs=as_ofs,
        demand_sources=settings.sources.demand,
    )
    return written(snapshot, as_ofs)


def plan(settings: Settings, *, cache: str, as_of_s: int) -> PlanSummary:
    """Plan for one cache, from its own inventory."""
    from jobs.plan.plan import run

    return run(Tables(settings.tables.root), settings, moment(settings, cache, as_of_s))


def explain(settings: Settings, *, cache: str, as_of_s: int, item: str) -> Explanation:
    """Why one file would be planned now, or would not; nothing is written."""
    from jobs.plan.plan import explained

    return explained(Tables(settings.tables.root), settings, moment(settings, cache, as_of_s), item=item)


def moment(settings: Settings, cache: str, as_of_s: int) -> Moment:
    """A cache at `as_of_s`: what it holds by its own word, what earlier plans hold there, and its tries."""
    from jobs.plan.cache_state import Moment
    from jobs.push.targets import target

    chosen = settings.cache(cache)
    with contextlib.closing(_journal(settings)) as journal:
        pins = journal.pins(cache, now_s=as_of_s)
        tries = journal.tries(cache, since_s=as_of_s - settings.plan.reconsider_source)
    return Moment(chosen, target(chosen).inventory(), {item.name for item in pins}, as_of_s, tries)


def outcomes(settings: Settings, *, cache: str, as_of_s: int) -> OutcomeSummary:
    """Account what one plan's files have earned."""
    from jobs.outcomes.items import run

    return run(Tables(settings.tables.root), cache=settings.cache(cache).name, as_of_s=as_of_s)


def report(settings: Settings, *, out: Path) -> dict[str, object]:
    """Write the HTML report."""
    from jobs.report.build import build

    html = build(Tables(settings.tables.root), watermarks=settings.replay.watermarks)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html)
    return {"report": str(out), "size_bytes": len(html.encode())}


def forecast(*, series: Path, as_of: str, horizons: Sequence[int], out: Path) -> ForecastSummary:
    """Forecast a popularity series."""
    from jobs.train.forecast import run

    return run(series=series, as_of=as_of, horizons=horizons, out=out)


def forecast_quality(
    *, series: Path, as_of: str, horizons: Sequence[int], cuts: Sequence[int], out: Path
) -> list[HorizonQuality]:
    """Judge forecasts of a popularity series at past units."""
    from jobs.train.forecast import judge

    return judge(series=series, as_of=as_of, horizons=horizons, cuts=cuts, out=out)


def _journal(settings: Settings) -> Journal:
    from prefetch.journal.journal import Journal

    return Journal(settings.push.journal)


def on_grid(as_ofs: Sequence[int], cycle_s: int) -> None:
    """Raise InputError unless every as_of begins a cycle."""
    for at in as_ofs:
        if at % cycle_s:
            raise InputError(
                f"{as_of_label(at)} is not on the grid of cycles; the last one before it is "
                f"{as_of_label(at - at % cycle_s)}"
            )


def written(snapshot: Snapshot, as_ofs: Sequence[int]) -> Written:
    """What a step says of the table it wrote."""
    labels = {as_of_label(at) for at in as_ofs}
    n_rows = sum(part.n_rows for key, part in snapshot.partitions.items() if key[1] in labels)
    return Written(snapshot.table.name, len(as_ofs), n_rows, snapshot.id[:12])
