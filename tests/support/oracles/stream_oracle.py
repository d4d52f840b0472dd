"""The columns of `features.stream` for one file at one time, computed from the whole list of reads.

Written from the meaning of the columns, with nothing of the kernels: lists and loops, no running state.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise

HOUR = 3600.0
NAN = math.nan


@dataclasses.dataclass(frozen=True)
class Read:
    """One read: when, of which file, by whom."""

    at_s: float
    file: int
    reader: int


@dataclasses.dataclass
class Pass:
    """A reader's pass through a dataset; `remembered`: files that still know that it read them."""

    reader: int
    serial: int
    start_s: float
    gap_s: float
    last_s: float
    n_read: int = 0
    front: float = 0.0
    remembered: list[int] = dataclasses.field(default_factory=list)


def decayed(times: Sequence[float], now_s: float, hours: float) -> float:
    return sum(2 ** (-(now_s - at) / (hours * HOUR)) for at in times)


def passes_of(
    reads: Sequence[Read], position: dict[int, float], pause_s: float
) -> tuple[list[Pass], list[Pass]]:
    """All passes of a dataset in the order of their starts, and the four that are kept, newest first."""
    begun: list[Pass] = []
    kept: list[Pass] = []
    readers_of: dict[int, list[int]] = {}
    for read in reads:
        current = next((p for p in kept if p.reader == read.reader and read.at_s - p.last_s <= pause_s), None)
        if current is None:
            gap_s = read.at_s - begun[-1].start_s if begun else NAN
            current = Pass(read.reader, len(begun), read.at_s, gap_s, read.at_s)
            begun.append(current)
            kept.insert(0, current)
            if len(kept) > 4:
                # Of several that were silent alike, the one that began last goes first.
                kept.remove(min(kept[1:], key=lambda p: p.last_s))
        current.last_s = read.at_s
        current.front = max(current.front, position[read.file])
        serials = readers_of.setdefault(read.file, [])
        if current.serial not in serials:
            current.n_read += 1
            serials.insert(0, current.serial)
            del serials[4:]
    for p in begun:
        p.remembered = [file for file, serials in readers_of.items() if p.serial in serials]
    return begun, kept


def row(
    reads: Sequence[Read],
    file: int,
    now_s: float,
    *,
    dataset: Sequence[int],
    tier: Sequence[int],
    size: Sequence[int],
    pause_s: float,
) -> dict[str, float]:
    """The columns, by name."""
    own = [r.at_s for r in reads if r.file == file]
    of_dataset = [r for r in reads if dataset[r.file] == dataset[file]]
    position: dict[int, float] = {}
    for r in of_dataset:
        position.setdefault(r.file, float(len(position)))
    n_files = max(1, len(position))
    found: dict[str, float] = {
        "size_bytes": size[file],
        "tier": tier[file],
        "n_reads": len(own),
        "since_first_s": now_s - own[0] if own else NAN,
        "recency_s": now_s - own[-1] if own else NAN,
        "position": position.get(file, NAN) / n_files,
        "hour": now_s % 86400 // 3600,
        "weekday": now_s // 86400 % 7,
    }
    times = [r.at_s for r in of_dataset]
    for hours in (2, 12, 48, 192):
        found[f"decayed_{hours}h"] = decayed(own, now_s, hours) if own else NAN
        found[f"dataset_decayed_{hours}h"] = decayed(times, now_s, hours) / n_files if times else NAN
    gaps = [after - before for before, after in pairwise(own)][::-1]
    for k in range(3):
        found[f"gap_{k}_s"] = gaps[k] if k < len(gaps) else NAN
    found |= {
        "dataset_recency_s": now_s - times[-1] if times else NAN,
        "dataset_n_files": n_files,
        "dataset_reads_per_file": len(times) / n_files,
        "dataset_since_first_s": now_s - times[0] if times else NAN,
    }
    mean = NAN
    last: dict[int, float] = {}
    for r in of_dataset:
        if r.file in last:
            gap = r.at_s - last[r.file]
            mean = gap if math.isnan(mean) else mean + 0.2 * (gap - mean)
        last[r.file] = r.at_s
    found["due_s"] = mean - (now_s - own[-1]) if own else NAN
    begun, kept = passes_of(of_dataset, position, pause_s)
    starts = [p.start_s for p in begun]
    found |= {
        "dataset_n_passes": len(starts),
        "dataset_since_pass_s": now_s - starts[-1] if starts else NAN,
        "dataset_passes_per_day": len(starts) / (now_s - starts[0] + 86400) * 86400 if starts else NAN,
    }
    for hours in (24, 96, 384):
        found[f"dataset_passes_{hours}h"] = decayed(starts, now_s, hours) if starts else NAN
    in_progress = [p for p in kept if now_s - p.last_s <= pause_s]
    dues = {
        p.serial: _due(p, position.get(file, NAN), now_s) for p in in_progress if file not in p.remembered
    }
    return (
        found | _progress(in_progress, dues, n_files, now_s) | _last_three(kept, file, dues, n_files, now_s)
    )


def _progress(
    in_progress: list[Pass], dues: dict[int, float], n_files: int, now_s: float
) -> dict[str, float]:
    coming = [p for p in in_progress if p.serial in dues]
    share = [p.n_read / n_files for p in coming]
    return {
        "n_in_progress": len(in_progress),
        "n_to_come": len(coming),
        "least_share_to_come": min(share, default=NAN),
        "most_share_to_come": max(share, default=NAN),
        "rate_to_come": sum(p.n_read / n_files / max(300.0, now_s - p.start_s) * 3600 for p in coming),
        "front_due_s": min((due for due in dues.values() if due >= 0), default=NAN),
    }


def _last_three(
    kept: list[Pass], file: int, dues: dict[int, float], n_files: int, now_s: float
) -> dict[str, float]:
    found: dict[str, float] = {}
    for k in range(3):
        p = kept[k] if k < len(kept) else None
        found |= {
            f"pass_{k}_age_s": NAN if p is None else now_s - p.start_s,
            f"pass_{k}_share": NAN if p is None else p.n_read / n_files,
            f"pass_{k}_silence_s": NAN if p is None else now_s - p.last_s,
            f"pass_{k}_has_read": NAN if p is None else float(file in p.remembered),
            f"pass_{k}_gap_s": NAN if p is None else p.gap_s,
            f"pass_{k}_front_due_s": NAN if p is None else dues.get(p.serial, NAN),
        }
    return found


def _due(p: Pass, position: float, now_s: float) -> float:
    return (position - p.front) * max(300.0, now_s - p.start_s) / (p.front + 1)
