"""What each model version's plans and order of eviction earned in a cache, told to its card in MLflow."""

from __future__ import annotations

from collections.abc import Mapping

from features.common.errors import ServiceError, StaleInputError
from features.common.units import format_bytes
from jobs.outcomes import history
from jobs.outcomes.history import History
from jobs.settings.tree import Settings
from jobs.store.tables import Tables
from jobs.store.trainings import trained
from jobs.text import Row
from jobs.train.registry import registry


def tell(settings: Settings, *, cache: str) -> str | None:
    """Write what versions earned in `cache` so far as their tag `earned.CACHE`, and into their cards.

    Only versions of the table trainings are asked for. Returns why MLflow was not told; None: it was, or
    there is nothing to tell.
    """
    try:
        past = history.history(settings, cache=cache, since=None, until=None)
        known = trained(Tables(settings.tables.root), region=settings.region.name)
        told = {version: text for version, text in earned(past).items() if version in known}
        if told:
            at = registry(settings.mlflow)
            for version, text in told.items():
                at.tag(version, {f"earned.{cache}": text})
                at.describe(version, f"Earned in {cache}", text)
    except StaleInputError:
        return None
    except ServiceError as error:
        return f"the outcomes are in the tables, but not in MLflow: {error}"
    return None


def earned(past: History) -> dict[str, str]:
    """In words, by version: the bytes of its plans, and of the days on which a steward followed its order."""
    found = {str(row["model_version"]): _of_plans(row) for row in past.models}
    days: dict[str, list[Row]] = {}
    for row in past.steward:
        days.setdefault(str(row["model_version"]), []).append(row)
    for version, rows in days.items():
        found[version] = " ".join(filter(None, (found.get(version), _of_order(rows))))
    return found


def _of_plans(row: Mapping[str, object]) -> str:
    saved, spent, wasted = (
        format_bytes(int(str(row[name]))) for name in ("bytes_saved", "bytes_spent", "bytes_wasted")
    )
    return (
        f"Plans: {row['read_items']} of {row['items']} items were read; {saved} saved, {spent} spent, "
        f"{wasted} wasted."
    )


def _of_order(rows: list[Row]) -> str:
    saved, lru = (sum(int(row[name]) for row in rows) for name in ("saved_wan_bytes", "lru_wan_bytes"))
    verb = "saved" if saved >= 0 else "cost"
    share = f" ({abs(saved) / lru:.1%})" if lru else ""
    return (
        f"Evictions: on {len(rows)} days the steward {verb} {format_bytes(abs(saved))} of WAN traffic "
        f"against plain LRU{share}, by its own count."
    )
