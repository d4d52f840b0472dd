"""Whether a decision time is worth predicting and acting on: checked before anything starts for it."""

from __future__ import annotations

from features.common.errors import NotDueError
from features.common.times import as_of_label
from jobs.ingest.arrivals import shortfalls
from jobs.settings.tree import Settings
from jobs.store.tables import Tables
from jobs.store.trainings import named, trained
from models.serving.names import CANDIDATE, CHAMPION


def check_current(settings: Settings, *, as_of_s: int, now_s: int) -> None:
    """Raise NotDueError if the region has features of a later decision time that has come by `now_s`.

    Plans of a time that was overtaken are obsolete: after an outage only the newest is carried out.
    """
    at, now = as_of_label(as_of_s), as_of_label(now_s)
    features, region = settings.features.spec.features_table, settings.region.name
    newest = Tables(settings.tables.root).newest(features, owner=region, after=at, until=now)
    for key in newest.partitions:
        raise NotDueError(f"{at} was overtaken: there are features of {key[1]}, and only the newest acts")


def check_served(settings: Settings, *, as_of_s: int) -> None:
    """Raise NotDueError unless a model may serve the region at `as_of_s`, by the site's own tables.

    Without a champion, `[mlflow] serve` may let the newest training serve. A model that has learned from what
    came later than `as_of_s` does not.
    """
    tables, region, aliases = Tables(settings.tables.root), settings.region.name, settings.mlflow.serve
    champion, known = named(tables, region=region).get(CHAMPION), trained(tables, region=region)
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
        tables, region = Tables(settings.tables.root), settings.region.name
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
