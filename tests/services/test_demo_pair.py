"""The demo's two real XCaches side by side: the same reads, both stewards, and replay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from steward_site import eventually

from jobs.demo import habits, pair, summary
from jobs.demo.pair import Pair
from jobs.demo.side import Seen
from jobs.local.xrootd import available
from jobs.progress import unwatched
from prefetch.xcache.gstream import FileClose, read_capture

pytestmark = pytest.mark.service
SEED = 1


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pair") / "side-by-side"


@pytest.fixture(scope="module")
def both(out: Path) -> Pair:
    if (fault := available()) is not None:
        pytest.fail(f"these tests need a real XCache: {fault}")
    return pair.run(out, seed=SEED, on_progress=unwatched)


@pytest.fixture(scope="module")
def seen(both: Pair) -> dict[str, Seen]:
    assert both.plain.seen is not None and both.steward.seen is not None
    return {pair.PLAIN: both.plain.seen, pair.STEWARD: both.steward.seen}


@pytest.fixture(scope="module")
def records(out: Path, both: Pair) -> dict[str, tuple[FileClose, ...]]:
    captures = {name: read_capture(out / name / "gstream.txt") for name in pair.ORDERS}
    assert not any(one.n_lost for one in captures.values())
    # A steward opens a file now and then, to hear of it.
    reads = {name: [one for one in found.records if not one.is_ours] for name, found in captures.items()}
    return {name: tuple(found) for name, found in reads.items()}


def test_both_caches_served_the_same_reads_and_none_failed(
    seen: dict[str, Seen], records: dict[str, tuple[FileClose, ...]]
) -> None:
    trace = habits.reads(SEED)
    names, sizes = Counter(habits.names_read(trace)), habits.sizes(trace)
    for name, found in seen.items():
        assert (found.reads, found.failed_reads) == (names.total(), 0)
        reported = Counter(one.lfn for one in records[name])
        assert reported <= names
        assert found.closes == reported.total()
        # A file that is read again before its close is reported has one report, with the bytes of both reads.
        read_bytes = sum(sizes[one] * n_reads for one, n_reads in names.items())
        assert 0.995 * read_bytes <= found.hit_bytes + found.wan_bytes <= read_bytes


def test_the_stewards_evicted_and_the_caches_never_had_to_purge(both: Pair, seen: dict[str, Seen]) -> None:
    for found in seen.values():
        assert found.evicted_files > 100
        # Beside other tests a steward's look comes late now and then, so no bound holds at every moment.
        assert 0.65 * both.capacity_bytes < found.mean_bytes < both.high_bytes


def test_byte_hits_are_those_of_the_replay(both: Pair, seen: dict[str, Seen]) -> None:
    for side in (both.plain, both.steward):
        assert seen[side.cache].byte_hit_ratio == pytest.approx(side.replayed_byte_hit_ratio, abs=0.07)


def test_the_summary_is_computed_from_the_caches_records(
    both: Pair, seen: dict[str, Seen], records: dict[str, tuple[FileClose, ...]]
) -> None:
    wan = {name: sum(one.b_miss + one.b_bypass for one in of) for name, of in records.items()}
    assert {name: found.wan_bytes for name, found in seen.items()} == wan
    saved = wan[pair.PLAIN] - wan[pair.STEWARD]
    first, *_ = summary.side_by_side_answers(both)
    assert f"{'saves' if saved >= 0 else 'costs'} " in first
    assert f"({100 * abs(saved) / wan[pair.PLAIN]:.1f} %) of WAN traffic against plain" in first


COMMAND = """
import sys
from pathlib import Path
from jobs.cli import interrupts
from jobs.demo import pair

def advance(done, total, what):
    if done:
        print("reads", flush=True)

with interrupts.in_one_line(print):
    pair.run(Path(sys.argv[1]), seed=1, on_progress=advance)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="xc-") as made:
        Path(made).chmod(0o755)  # the user that XRootD runs as must reach its folders
        yield Path(made)


@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGKILL])
def test_one_that_is_ended_leaves_no_server(folder: Path, signalled: signal.Signals) -> None:
    if (fault := available()) is not None:
        pytest.fail(f"these tests need a real XCache: {fault}")
    words = [sys.executable, "-c", COMMAND, str(folder / "out")]
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "reads\n"
        assert eventually(lambda: len(servers(folder)) >= 4)
        command.send_signal(signalled)
        command.communicate(timeout=60)
    assert eventually(lambda: not servers(folder))


def servers(folder: Path) -> list[str]:
    """Command lines of the processes that run on a configuration in `folder`."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # ended meanwhile
                continue
            if "xrootd" in line and f"{folder}/" in line and "-c " in line and "python" not in line:
                found.append(line)
    return found
