"""The condition of a region and its caches: what `status` answers, its alarms, and their remedies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from prefetch.steward.figures import StewardFigures

REMEDIES: Final[Mapping[str, str]] = {
    "no-champion": "run `cachecast evaluate --from DAY`, which needs weeks of records, then `cachecast "
    "promote`; `promote --why` says why one was refused",
    "prediction-late": "run `cachecast cycle --as-of TIME`: the step that fails is the cause",
    "incomplete": "see why its records are missing, faulty or late; pull them again when they are there",
    "drift": "see which columns `cachecast predict` names; if there are many, train again",
    "plan-late": "run `cachecast plan --cache NAME --as-of TIME`: its error says what is missing",
    "push-failed": "read the causes in `cachecast push status --cache NAME`; the next plan has what is "
    "still worth it",
    "not-pushed": "run `cachecast push run --cache NAME --as-of TIME`; it resumes where it stopped",
    "unproven": "`cachecast push cancel --cache NAME` stops what is undone; the rest ends with its time",
    "above-high-watermark": "free the disk, or restart a server that does not purge; compare `capacity` and "
    "`watermarks` with the server's",
    "pins-over-limit": "correct `capacity` or [push] journal, then plan and push: the next plan unpins",
    "steward-silent": "restart its service; if it is not wanted any more, stop the service and delete the "
    "cache's file in [steward] state",
    "steward-outrun": "after a burst do nothing; if it happens each day, lower the low watermark of the "
    "server and of the settings",
    "steward-blind": "start the collector, add the two lines of docs/steward.md to the server, or run the "
    "steward as the server's user: the text says which",
    "steward-implausible": "compare `capacity` and `watermarks` with the server's; if they agree and the "
    "cache really is too full, restart the steward with --force",
    "steward-impostor": "find out who sends to the collector in the cache's name, and let the firewall admit "
    "the caches alone",
    "steward-cache": "start the server, mount its disks, and let the steward read its namespace",
    "steward-lists": "correct [push] journal, or restore its database; before the first push of a site make "
    "one: `cachecast push resume --cache NAME`",
    "steward-order": "start MLflow if it is unavailable; else `cachecast promote --rollback`, or train, "
    "evaluate and promote",
    "steward-clock": "set both clocks by NTP",
    "collector-full": "pull the captures with --new-only, or raise [collect] quota",
}
"""What to do first, by name of the alarm. NAME and TIME stand for the cache and the decision time."""


CRITICAL: Final = frozenset({"above-high-watermark", "pins-over-limit", "steward-impostor"})
"""Urgent, as a disk or records are at risk; the same in the rules for Prometheus."""


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A condition that an operator should check; `name` is its heading in docs/troubleshoot.md."""

    name: str
    about: str
    text: str
    remedy: str

    @property
    def severity(self) -> str:
        """`critical` or `warning`."""
        return "critical" if self.name in CRITICAL else "warning"

    @property
    def has_section(self) -> bool:
        """Whether docs/troubleshoot.md has a section of this name, which a steward may have made up."""
        return self.name in REMEDIES


def alarm(name: str, about: str, text: str, as_of: str = "TIME") -> Alarm:
    """The alarm `name` of a region or cache, with its remedy, which may be for the decision time `as_of`."""
    remedy = REMEDIES.get(name, "see docs/troubleshoot.md")
    return Alarm(name, about, text, remedy.replace("NAME", about).replace("TIME", as_of))


@dataclasses.dataclass(frozen=True)
class CacheStatus:
    """One cache, by its last inventory, plan and push.

    `inventory_at`: the time of what it held; `fill_share` and `watermarks`: of the capacity; `pinned_bytes`:
    of the current pins; `push`: items of the last push by state; `unproven`: items pushed although no
    promotion covers them, as long as they are undone, failed, pinned, or fetched and in their time;
    `steward`: its last report; `steward_fault`: why that cannot be read. Unknown values are None.
    """

    cache: str
    capacity_bytes: int
    inventory_at: str | None
    held_files: int | None
    held_bytes: int | None
    fill_share: float | None
    pins: int
    pinned_bytes: int
    plan_at: str | None
    plan: dict[str, int]
    push_at: str | None
    push: dict[str, int]
    unproven: int
    steward: StewardFigures | None = None
    steward_fault: str | None = None
    watermarks: tuple[float, float] = (0.90, 0.95)


@dataclasses.dataclass(frozen=True)
class Status:
    """The region at `at`; `champion`: None if none was promoted.

    `candidate_serves`: there is no champion, and a candidate made the newest predictions, which `[mlflow]
    serve` allows.
    """

    at: str
    region: str
    champion: str | None
    decided_at: str | None
    candidate_serves: bool
    scored_by: str | None
    predictions_at: str | None
    predictions: int
    drifted_columns: int
    caches: tuple[CacheStatus, ...]
    alarms: tuple[Alarm, ...]
