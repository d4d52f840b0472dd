"""Traces that benches compare policies on: files of ../shared/data, and generated regions."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
DATA = ROOT.parent / "shared" / "data"

from features.common.times import DAY_S, parse_day  # noqa: E402
from jobs.loop.traces import TraceFile  # noqa: E402
from jobs.studies.simulate import workload  # noqa: E402
from replay.access_context import CONTEXT, AccessContext, context_of  # noqa: E402
from replay.trace import Trace  # noqa: E402

PUBLIC: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "dandi": ("dandi_accesses_2025-07-09_08-02.csv.gz", "2025-07-23"),
        "cran": ("cran_accesses_2014-12-16_29d.csv.gz", "2014-12-31"),
    }
)
"""Public traces by name, an archive's and a CDN's: file, and the first day that counts."""
REGIONS = ("mwt2", "prague", "pic", "socal", "archive")


class Board(NamedTuple):
    """A trace, counted from `from_s` on; what lies before it warms the caches, and teaches the orders."""

    name: str
    trace: Trace
    story: AccessContext
    from_s: int

    def capacity(self, fraction: float) -> int:
        """Bytes of a cache of this share of the trace's files."""
        return int(fraction * self.trace.footprint_bytes)


def public(name: str, count_from: str = "") -> Board:
    """A public trace, counted from a day."""
    file, day = PUBLIC[name]
    return of_file(name, DATA / file, parse_day(count_from or day))


def region(name: str, accesses: int, seed: int, count_from: float = 0.5) -> Board:
    """A generated region, counted from the day that begins after this share of its time."""
    with tempfile.TemporaryDirectory(prefix="cachecast-") as scratch:
        written = workload.write(workload.load(name, seed=seed, accesses=accesses), out=Path(scratch))
        return of_file(name, Path(written.traces), count_from)


def of_file(name: str, path: Path, count_from: float) -> Board:
    """The trace of a file; `count_from`: the time in seconds, or the share of its time before."""
    loaded = TraceFile(path, {}, "s", "auto", False, {}, None).load(keep=CONTEXT)
    first_s, last_s = int(loaded.trace.time_s[0]), int(loaded.trace.time_s[-1])
    from_s = count_from if count_from > 1 else first_s + count_from * (last_s - first_s)
    return Board(name, loaded.trace, context_of(loaded), int(from_s) // DAY_S * DAY_S)
