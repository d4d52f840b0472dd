"""What an attack on a steward did, phase by phase, and the promises that it broke."""

from __future__ import annotations

import bisect
from typing import NamedTuple

from attacked_cache import LOOK_S, Disk, Gone, Loss
from steward_site import MIB, name_of

DISK_BYTES = 64 * MIB
KEPT_BYTES = int(0.9 * DISK_BYTES)
"""Nine tenths of the disk: the steward has to evict before the cache's own purge does."""
BLIND_WITHIN_S = 15.0
"""So soon after its last report a steward must have stopped."""
PUBLISHED_WITHIN_S = 2.0
"""After its target has changed a steward publishes it so soon, and it is read here."""
RSS_MORE_BYTES = 48 * MIB
"""What a steward of so few files may take more than when it began."""
RESTARTS = "restarts in its name"
TOO_SMALL = "capacity ten times too small"


class Phase(NamedTuple):
    """What was done, from when to when, and the datagrams sent for it; `blind`: no report could come."""

    name: str
    begin_s: float
    end_s: float
    n_sent: int
    blind: bool


class Row(NamedTuple):
    """A phase, and what happened in it."""

    phase: Phase
    n_evicted: int
    n_open_lost: int
    n_pins_lost: int
    beyond_bytes: int
    n_while_blind: int
    blind_s: float
    peak_rss: int


def row(phase: Phase, disk: Disk, losses: list[Loss], pinned: list[str]) -> Row:
    """What happened in a phase."""
    during = [gone for gone in disk.gone if phase.begin_s <= gone.at_s < phase.end_s]
    pins = {name_of(name) for name in pinned}
    blind = [at_s for at_s, alarms in disk.alarms if "steward-blind" in alarms and _within(phase, at_s)]
    return Row(
        phase,
        n_evicted=sum(len(gone.names) for gone in during),
        n_open_lost=sum(_within(phase, loss.at_s) for loss in losses),
        n_pins_lost=sum(name in pins for gone in during for name in gone.names),
        beyond_bytes=sum(beyond(disk, gone) for gone in during),
        n_while_blind=sum(phase.blind and gone.at_s > phase.begin_s + BLIND_WITHIN_S for gone in during),
        blind_s=len(blind) * 10 * LOOK_S,
        peak_rss=max((rss for at_s, rss in disk.rss if _within(phase, at_s)), default=0),
    )


def beyond(disk: Disk, gone: Gone) -> int:
    """Bytes that went though the disk was below the target already: the last one published, or the next."""
    times = [at_s for at_s, _ in disk.targets]
    at = bisect.bisect(times, gone.at_s)
    near = [
        target for at_s, target in disk.targets[max(0, at - 1) :] if at_s < gone.at_s + PUBLISHED_WITHIN_S
    ]
    return max(0, min(gone.n_bytes, min(near, default=0) - MIB - gone.left))


def _within(phase: Phase, at_s: float) -> bool:
    return phase.begin_s <= at_s < phase.end_s


def judged(disk: Disk, rows: list[Row]) -> list[str]:
    """The promises that were broken."""
    broken = list[str]()
    for each in rows:
        numbers = {
            "open files or reads lost": each.n_open_lost,
            "pins lost": each.n_pins_lost,
            "bytes evicted below the target": each.beyond_bytes,
            "files evicted while no report could come": each.n_while_blind,
        }
        broken += [f"{each.phase.name}: {n} {what}" for what, n in numbers.items() if n]
        if each.phase.blind and not each.blind_s:
            broken.append(f"{each.phase.name}: no alarm steward-blind")
    before = [each for each in rows if each.phase.name != TOO_SMALL]
    if (grown := max(each.peak_rss for each in before) - disk.rss[0][1]) > RSS_MORE_BYTES:
        broken.append(f"the steward grew by {grown // MIB} MiB")
    evicted = sum(eviction.n_bytes for eviction in disk.gone) // MIB
    room = (KEPT_BYTES - min(target for _, target in disk.targets if target > DISK_BYTES // 10)) // MIB
    if evicted > disk.received // MIB + room:
        broken.append(f"{evicted} MiB evicted, {disk.received // MIB} received, and {room} of room")
    reported = [alarms for _, alarms in disk.alarms]
    if any(each.phase.name == RESTARTS for each in rows) and not any(
        "two senders" in str(alarm) for alarm in reported
    ):
        broken.append("no alarm says that there are two senders of one name")
    small = [each for each in rows if each.phase.name == TOO_SMALL]
    if small and not any("steward-implausible" in alarm for alarm in reported):
        broken.append("no alarm steward-implausible")
    if small and small[0].n_evicted > 2:
        broken.append(f"{TOO_SMALL}: {small[0].n_evicted} files went")
    if disk.unreadable:
        broken.append(disk.unreadable)
    return broken + ([] if disk.fault is None else [f"the drill itself failed: {disk.fault!r}"])


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    heads = (
        *("attack", "s", "datagrams sent", "evictions", "open files lost", "pins lost"),
        *("MiB evicted beyond need", "evictions while blind", "s with the alarm", "peak RSS, MiB"),
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        phase = row.phase
        cells = (
            *(phase.name, f"{phase.end_s - phase.begin_s:.0f}", phase.n_sent, row.n_evicted, row.n_open_lost),
            *(row.n_pins_lost, f"{row.beyond_bytes / MIB:.1f}", row.n_while_blind, f"{row.blind_s:.0f}"),
            row.peak_rss // MIB,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
