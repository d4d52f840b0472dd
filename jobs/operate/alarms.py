"""An alarm with its remedy; docs/troubleshoot.md has a section for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

REMEDIES: Final[Mapping[str, str]] = {
    "no-champion": "read `cachecast promote --why`; a new site waits for its first evaluation",
    "prediction-late": "run pull, features and predict of the last cycle: the first that fails is the cause",
    "incomplete": "see why its records are missing, faulty or late; pull them again when they are there",
    "drift": "see which columns `cachecast predict` names; if there are many, train again",
    "plan-late": "run `cachecast plan` for the cache: its error says what is missing",
    "push-failed": "read the causes in `cachecast push --status`; the next plan has what is still worth it",
    "not-pushed": "run `cachecast push`; it resumes where it stopped",
    "unproven": "`cachecast push --cancel` stops what is undone; the rest ends with its time",
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
    "one: `cachecast push --cache NAME --resume`",
    "steward-order": "start MLflow if it is unavailable; else `cachecast promote --rollback`, or train, "
    "evaluate and promote",
    "steward-clock": "set both clocks by NTP",
    "collector-full": "pull the captures with --new-only, or raise [collect] quota",
}
"""What to do first, by name of the alarm."""


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A condition that an operator should check; `name` is its heading in docs/troubleshoot.md."""

    name: str
    about: str
    text: str
    remedy: str


def alarm(name: str, about: str, text: str) -> Alarm:
    """The alarm `name` of a region or cache, with its remedy."""
    return Alarm(name, about, text, REMEDIES.get(name, "see docs/troubleshoot.md"))
