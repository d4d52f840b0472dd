"""Whether a decision time is worth predicting and acting on: checked before anything starts for it."""

import dataclasses

from features.common.errors import NotDueError
from features.common.times import as_of_label, day_label
from features.results import WORTH
from features.schema import RECEIPTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.ingest.arrivals import shortfalls
from jobs.loop.trainings import promoted_models, trained_versions
from models.serving.versions import CANDIDATE, CHAMPION


def check_current(settings: Settings, *, as_of_s: int, now_s: int) -> None:
    """Raise NotDueError if the region has features of a later decision time that has come by `now_s`.

    Plans of a time that was overtaken are obsolete: after an outage only the newest is carried out. A time
    that is more than a cycle ahead does not act either: it is a mistake, or the clock is wrong.
    """
    if as_of_s > now_s + settings.features.cycle:
        at, now = as_of_label(as_of_s), as_of_label(now_s)
        raise NotDueError(f"{at} has not come: this machine's clock says {now}")
    if (by := overtaken_by(settings, as_of_s=as_of_s, now_s=now_s)) is not None:
        at = as_of_label(as_of_s)
        raise NotDueError(f"{at} was overtaken: there are features of {by}, and only the newest acts")


def overtaken_by(settings: Settings, *, as_of_s: int, now_s: int) -> str | None:
    """The newest decision time until `now_s` that is later and has features; None: there is none."""
    features, region = settings.features.spec.features_table, settings.region.name
    after, until = as_of_label(as_of_s), as_of_label(now_s)
    newest = Tables.of(settings).newest(features, owner=region, after=after, until=until)
    return next((key[1] for key in newest.partitions), None)


def check_served(settings: Settings, *, as_of_s: int) -> None:
    """Raise NotDueError unless a model may serve the region at `as_of_s`, by the site's own tables.

    Without a champion, `[mlflow] serve` may let the newest training serve. A model that has learned from what
    came later than `as_of_s` does not.
    """
    tables, region, aliases = Tables.of(settings), settings.region.name, settings.mlflow.serve
    champion = promoted_models(tables, region=region).get(CHAMPION)
    known = trained_versions(tables, region=region)
    may_serve = {name for name in known if CANDIDATE in aliases}
    if champion is not None and CHAMPION in aliases:
        may_serve = {champion.version}
    if not may_serve:
        raise NotDueError(
            f"region {region!r} has no {' or '.join(aliases)} yet, so its caches run plain LRU: `cachecast "
            "train`, `evaluate` and `promote` make one"
        )
    if all(name in known and known[name].until_s > as_of_s for name in may_serve):
        raise NotDueError(f"{as_of_label(as_of_s)} is before the training of {', '.join(sorted(may_serve))}")


def check_complete(settings: Settings, *, as_of_s: int) -> None:
    """Raise NotDueError if a source fell short by `as_of_s`, and `[arrivals] incomplete` is "skip"."""
    if settings.arrivals.incomplete == "skip":
        tables, region = Tables.of(settings), settings.region.name
        for short in shortfalls(tables, region=region, as_of_s=as_of_s):
            raise NotDueError(f"{short} at {as_of_label(as_of_s)}, and [arrivals] incomplete says skip")


def run(settings: Settings, *, as_of_s: int, now_s: int | None) -> None:
    """Raise NotDueError with the reason unless the decision time is to be predicted, planned and pushed.

    `now_s`: None if it is to be predicted only, which later decision times do not change.
    """
    check_complete(settings, as_of_s=as_of_s)
    check_served(settings, as_of_s=as_of_s)
    if now_s is not None:
        check_current(settings, as_of_s=as_of_s, now_s=now_s)


@dataclasses.dataclass(frozen=True)
class CacheLine:
    """A cache; `rse`: in Rucio, empty without one; `day`: one without a verdict, if these were asked for."""

    name: str
    rse: str
    day: str = ""


@dataclasses.dataclass(frozen=True)
class CacheFilter:
    """The conditions that listed caches meet.

    `pushed_at_s`: a plan of that decision time was pushed to the cache. `unjudged_s`: plans of the day that
    starts then were pushed, `[airflow] pull` names a source of caches' own records, and the day has no
    verdict yet; and of the days until `unjudged_to_s`, if given. `with_rse`: the cache has an RSE in Rucio.
    """

    pushed_at_s: int | None = None
    unjudged_s: int | None = None
    unjudged_to_s: int | None = None
    with_rse: bool = False


def listed(settings: Settings, conditions: CacheFilter) -> list[CacheLine]:
    caches = [cache for _, cache in sorted(settings.caches.items()) if cache.rse or not conditions.with_rse]
    tables = Tables.of(settings)
    if conditions.pushed_at_s is not None:
        at = as_of_label(conditions.pushed_at_s)
        pushed = {key[2] for key in tables.head(RECEIPTS).partitions if key[1] == at}
        caches = [cache for cache in caches if cache.name in pushed]
    if conditions.unjudged_s is None:
        return [CacheLine(cache.name, cache.rse) for cache in caches]
    if not sources.select_sources(settings.airflow.pull, lambda source: source.of_caches):
        return []
    first, last = map(day_label, (conditions.unjudged_s, conditions.unjudged_to_s or conditions.unjudged_s))
    pushed_to = {(key[0], key[2]) for key in tables.head(RECEIPTS).partitions if first <= key[0] <= last}
    # A directory cache has no records of its own.
    rses = {cache.name: cache.rse for cache in caches if cache.kind == "xcache"}
    unjudged = sorted(pushed_to.difference(tables.head(WORTH).partitions))
    return [CacheLine(name, rses[name], day) for day, name in unjudged if name in rses]
