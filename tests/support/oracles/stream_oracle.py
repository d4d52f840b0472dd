"""The columns of `features.stream` for one file at one time, computed from the whole list of reads.

Written from the meaning of the columns, with nothing of the kernels: lists and loops, no running state.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

HOUR = 3600.0
NAN = math.nan


@dataclasses.dataclass(frozen=True)
class Read:
    """`n` reads of a file: when, by whom, and from when on they count (None: at once)."""

    at_s: float
    file: Any
    reader: int
    n: float = 1.0
    from_s: float | None = None

    @property
    def counted_s(self) -> float:
        return self.at_s if self.from_s is None else self.from_s


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known beside the reads: the fields of `features.stream.state.Files` as lists."""

    dataset: Sequence[int]
    tier: Sequence[int]
    size: Sequence[int]
    rank: Sequence[int]
    n_files: Sequence[int]
    history_s: float


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
    remembered: list[Any] = dataclasses.field(default_factory=list)

    @property
    def pause_s(self) -> float:
        return 12 * HOUR if self.reader >= 2 and self.reader % 2 == 0 else 3 * HOUR

    def has(self, read: Read) -> bool:
        """Whether a read is within the pass: neither long after its last nor long before its first one."""
        near = read.at_s - self.last_s <= self.pause_s and self.start_s - read.at_s <= self.pause_s
        return self.reader == read.reader and near


def life_of(reads: Sequence[Read], history_s: float) -> list[Read]:
    """The reads of one dataset since it began anew for the last time, of all in the order of counting."""
    life: list[Read] = []
    for read in reads:
        is_silent = bool(life) and read.counted_s - max(r.at_s for r in life) > history_s
        if is_silent and read.counted_s > life[0].counted_s:
            life = []
        life.append(read)
    return life


def passes_of(reads: Sequence[Read], position: dict[Any, float]) -> tuple[list[Pass], list[Pass]]:
    """All passes of a dataset in the order of counting, and the four that are kept, newest first."""
    begun: list[Pass] = []
    passes: list[Pass] = []
    readers_of: dict[Any, list[int]] = {}
    for read in reads:
        current = next((p for p in passes if p.has(read)), None)
        if current is None:
            gap_s = abs(read.at_s - max(p.start_s for p in begun)) if begun else NAN
            if len(passes) == 4:
                passes.remove(min(passes, key=lambda p: (p.last_s, p.serial)))
            current = Pass(read.reader, len(begun), read.at_s, gap_s, read.at_s)
            begun.append(current)
            passes.insert(0, current)
        current.last_s = max(current.last_s, read.at_s)
        current.front = max(current.front, position[read.file])
        serials = readers_of.setdefault(read.file, [])
        if current.serial not in serials:
            current.n_read += 1
            serials.insert(0, current.serial)
            del serials[4:]
    for p in begun:
        p.remembered = [file for file, serials in readers_of.items() if p.serial in serials]
    return begun, passes


def gaps_of(reads: Sequence[Read]) -> dict[Any, list[float]]:
    """For each file the time between each read and the latest counted before, in the order of counting."""
    last: dict[Any, float] = {}
    gaps: dict[Any, list[float]] = {}
    for read in reads:
        if read.file in last:
            gaps.setdefault(read.file, []).append(abs(read.at_s - last[read.file]))
        last[read.file] = max(read.at_s, last.get(read.file, read.at_s))
    return gaps


def shift_of(reads: Sequence[Read]) -> float:
    """The running mean of all gaps of a dataset, in the order of counting; a new one weighs a fifth."""
    last: dict[Any, float] = {}
    mean = NAN
    for read in reads:
        if read.file in last:
            gap = abs(read.at_s - last[read.file])
            mean = gap if math.isnan(mean) else mean + 0.2 * (gap - mean)
        last[read.file] = max(read.at_s, last.get(read.file, read.at_s))
    return mean


def row(reads: Sequence[Read], file: int, now_s: float, known: Known) -> dict[str, float]:
    """The columns by name; `reads`: all that are counted by `now_s`, in the order of counting."""
    dataset = known.dataset[file]
    life = life_of([r for r in reads if known.dataset[r.file] == dataset], known.history_s)
    own = [r for r in life if r.file == file]
    position: dict[Any, float] = {}
    for r in life:
        position.setdefault(r.file, float(len(position)))
    n_files = max(1, len(position), known.n_files[dataset])
    unread = len(position) + known.rank[file] if known.rank[file] >= 0 else NAN
    place = position.get(file, unread)
    begun, passes = passes_of(life, position)
    in_progress = [p for p in passes if now_s - p.last_s <= p.pause_s]
    dues = {p.serial: _due(p, place, now_s) for p in in_progress if file not in p.remembered}
    return (
        {
            "size_bytes": known.size[file] if known.size[file] >= 0 else NAN,
            "tier": known.tier[file] if known.tier[file] >= 0 else NAN,
            "position": place / n_files,
            "hour": now_s % 86400 // 3600,
            "weekday": now_s // 86400 % 7,
            "due_s": shift_of(life) - (now_s - max((r.at_s for r in own), default=NAN)),
        }
        | _of_file(own, gaps_of(life).get(file, []), now_s)
        | _of_dataset(life, begun, n_files, now_s)
        | _progress(in_progress, dues, n_files, now_s)
        | _last_three(passes, file, dues, n_files, now_s)
    )


def _decayed(reads: Sequence[Read], now_s: float, hours: float) -> float:
    return sum(r.n * 2 ** (-(now_s - r.at_s) / (hours * HOUR)) for r in reads)


def _of_file(own: Sequence[Read], gaps: list[float], now_s: float) -> dict[str, float]:
    times = [r.at_s for r in own]
    columns = {
        "n_reads": sum(r.n for r in own),
        "since_first_s": now_s - min(times, default=NAN),
        "recency_s": now_s - max(times, default=NAN),
    }
    last = gaps[::-1]
    columns |= {f"gap_{k}_s": last[k] if k < len(last) else NAN for k in range(3)}
    return columns | {f"decayed_{hours}h": _decayed(own, now_s, hours) for hours in (2, 12, 48, 192)}


def _of_dataset(life: Sequence[Read], begun: Sequence[Pass], n_files: int, now_s: float) -> dict[str, float]:
    starts = [p.start_s for p in begun]
    since_first_s = now_s - min(starts, default=NAN)
    columns = {
        "dataset_recency_s": now_s - max((r.at_s for r in life), default=NAN),
        "dataset_n_files": n_files,
        "dataset_reads_per_file": sum(r.n for r in life) / n_files,
        "dataset_since_first_s": since_first_s,
        "dataset_n_passes": len(starts),
        "dataset_since_pass_s": now_s - max(starts, default=NAN),
        "dataset_passes_per_day": len(starts) / (since_first_s + 86400) * 86400,
    }
    for hours in (2, 12, 48, 192):
        columns[f"dataset_decayed_{hours}h"] = _decayed(life, now_s, hours) / n_files
    for hours in (24, 96, 384):
        columns[f"dataset_passes_{hours}h"] = sum(2 ** (-(now_s - at) / (hours * HOUR)) for at in starts)
    return columns


def _progress(
    in_progress: list[Pass], dues: dict[Any, float], n_files: int, now_s: float
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
    passes: list[Pass], file: int, dues: dict[Any, float], n_files: int, now_s: float
) -> dict[str, float]:
    columns: dict[str, float] = {}
    for k in range(3):
        p = passes[k] if k < len(passes) else None
        columns |= {
            f"pass_{k}_age_s": NAN if p is None else now_s - p.start_s,
            f"pass_{k}_share": NAN if p is None else p.n_read / n_files,
            f"pass_{k}_silence_s": NAN if p is None else now_s - p.last_s,
            f"pass_{k}_has_read": NAN if p is None else float(file in p.remembered),
            f"pass_{k}_gap_s": NAN if p is None else p.gap_s,
            f"pass_{k}_front_due_s": NAN if p is None else dues.get(p.serial, NAN),
        }
    return columns


def _due(p: Pass, position: float, now_s: float) -> float:
    return (position - p.front) * max(300.0, now_s - p.start_s) / (p.front + 1)
