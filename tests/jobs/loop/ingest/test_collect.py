"""The collector as a real process: real datagrams, killed and stopped, nothing received is lost."""

import contextlib
import datetime as dt
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cachecast_main import asked
from captures import Capture, read_capture
from commands import COMMAND
from monitoring import Sender, close
from waiting import eventually

from features.common.errors import InputError
from features.common.times import parse_as_of
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull, pull_input
from jobs.loop.ingest.bus import Bus, Collecting
from jobs.loop.ingest.local_engine import LocalEngine
from jobs.loop.ingest.pull_input import Mark, Request
from jobs.loop.ingest.sources import Site
from jobs.loop.ingest.sources.local import finished_in, places_at
from prefetch.xcache.events import frame
from prefetch.xcache.gstream import Numberings

STOP_S = 30.0
"""A busy machine may take this long; a collector that waits for its next datagram would never stop."""


class Daemon:
    """`cachecast collect` in a process of its own; `log` has its lines so far."""

    def __init__(self, out: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "collect", "--json", "--port", "0", "--out", str(out), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.log = [self.process.stderr.readline()]
        listening = re.search(r"listening on UDP 127\.0\.0\.1:(\d+), writing", self.log[0])
        assert listening, self.log[0] + self.process.stderr.read()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", int(listening[1])))

    def send(self, numbers: Iterable[int]) -> None:
        """Send the datagrams of `cache1` with these numbers."""
        for number in numbers:
            self.socket.send(datagram(number))

    def stop(self, number: int = signal.SIGTERM) -> dict[str, int]:
        """Stop it, in time; what it counted."""
        began = time.monotonic()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=120)
        assert time.monotonic() - began < STOP_S
        assert self.process.returncode == 0, err
        self.log += err.splitlines()
        self.socket.close()
        counts: dict[str, int] = json.loads(out)
        return counts

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=120)
        self.socket.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    daemons: list[Daemon] = []

    def started(*words: str) -> Daemon:
        daemons.append(Daemon(tmp_path / "captures", *words))
        return daemons[-1]

    yield started
    for daemon in daemons:
        if daemon.process.poll() is None:
            daemon.kill()


def datagram(pseq: int, *, inst: str = "cache1", stod: int = 1_700_000_000, lfn: str = "") -> bytes:
    record = close(lfn or f"/store/{inst}/{pseq}", 10**6, stod + 5, attach_t=stod, remotes=[])
    return Sender("h", 1094, inst, "S", stod, 7, pseq).gstream(record, ahead=0) + b"\0"


def n_kept(folder: Path) -> int:
    """Events in all files; a file that is finished meanwhile does not count."""
    n_events = 0
    for path in folder.glob("gstream-*"):
        with contextlib.suppress(FileNotFoundError):
            n_events += path.read_bytes().count(b"file_close")
    return n_events


def captured(folder: Path) -> Capture:
    """All finished captures, as the reader takes them."""
    numberings = Numberings()
    captures = [read_capture(path, numberings) for path in finished_in(places_at(str(folder)))]
    records = tuple(record for capture in captures for record in capture.records)
    return Capture(records, numberings.n_lost, sum(capture.n_malformed for capture in captures))


def test_samples_of_real_caches_are_kept(start: Callable[..., Daemon], data: Path, tmp_path: Path) -> None:
    daemon = start()
    n_sent = 0
    for version in ("5.5.3", "6.2.1"):
        content = (data / f"gstream-{version}.txt").read_bytes()
        bodies = [body.strip() for body in re.split(rb"(?m)^@@\d+ \d+ \d+\n", content) if body.strip()]
        for body in bodies:
            daemon.socket.send(body + b"\0")
            n_sent += 1
    counts = daemon.stop(signal.SIGINT)
    assert (counts["datagrams"], counts["lost"], counts["dropped"]) == (n_sent, 0, 0)
    assert counts["caches"] == 3
    lfns = [record.lfn for record in captured(tmp_path / "captures").records]
    assert lfns[:2] == ["/store/data/l/f0000.root", "/store/data/l/f0001.root"]


def test_killed_mid_stream_and_started_again_nothing_received_is_lost(
    start: Callable[..., Daemon], tmp_path: Path
) -> None:
    folder = tmp_path / "captures"
    daemon = start("--roll-size", "50kB")
    daemon.send(range(1, 401))
    assert eventually(lambda: n_kept(folder) == 400 and len(list(folder.glob("*.part"))) == 1)
    daemon.kill()
    assert len(list(folder.glob("*.part"))) == 1

    daemon = start("--roll-size", "50kB")
    assert not list(folder.glob("*.part"))
    # Ten went by while it was away, five more get lost; another cache says hello, and starts again.
    daemon.send([*range(411, 500), *range(505, 601)])
    for stod in (1_700_000_000, 1_700_000_900):
        daemon.socket.send(datagram(1, inst="cache2", stod=stod))
    daemon.socket.send(b"garbage")
    counts = daemon.stop()
    assert counts == {
        **{"datagrams": 188, "caches": 2, "lost": 15, "dropped": 0, "restarts": 1, "other": 0},
        **{"malformed": 1, "over_quota": 0, "files_recovered": 1, "bytes": counts["bytes"]},
        **{"held_bytes": sum(path.stat().st_size for path in folder.glob("gstream-*"))},
        **{"quota_bytes": 20 * 10**9},
    }
    capture = captured(folder)
    assert [record.lfn for record in capture.records if record.inst == "cache1"] == [
        f"/store/cache1/{number}" for number in (*range(1, 401), *range(411, 500), *range(505, 601))
    ]
    assert (capture.n_lost, capture.n_malformed) == (15, 0)
    assert len(list(folder.glob("gstream-*.capture"))) > 3
    assert "lost 15" in daemon.log[-1] and "stopped" in daemon.log[-1]


def test_it_logs_counts_and_finishes_an_idle_file_in_time(
    start: Callable[..., Daemon], tmp_path: Path
) -> None:
    folder = tmp_path / "captures"
    daemon = start("--roll-every", "1s", "--log-every", "1s")
    daemon.socket.send(datagram(1))
    assert eventually(lambda: bool(list(folder.glob("*.capture"))))
    daemon.stop()
    assert any("received: datagrams 1, " in line for line in daemon.log)
    (path,) = folder.glob("gstream-*")
    assert path.stat().st_mode & 0o777 == 0o640 & ~_umask()
    assert folder.stat().st_mode & 0o777 == 0o750 & ~_umask()


def test_who_deletes_pulled_datagrams_may_delete_what_a_broker_sent(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    settings, nothing = Settings.load(env={}).collect, lambda *_: False
    how = Collecting(settings, 2**20, 3600, 60, print, time.time, figures=print, concerns=nothing)
    broker: Any = None
    with Bus(tmp_path / "bus", broker, how):
        assert all(folder.stat().st_mode & 0o020 for folder in (tmp_path / "bus").iterdir())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_every_datagram_of_a_flood_is_kept_or_counted(start: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon, n_sent = start(), 20_000
    daemon.send(range(1, n_sent + 1))
    counts = daemon.stop()
    assert 0 < counts["datagrams"] == n_sent - counts["dropped"]
    assert len(captured(tmp_path / "captures").records) == counts["datagrams"]


def test_a_full_folder_is_an_alarm_and_a_count(
    start: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHECAST_COLLECT__QUOTA", "2kB")
    monkeypatch.setenv("CACHECAST_METRICS__FOLDER", str(tmp_path / "prom"))
    daemon = start("--log-every", "1h")
    daemon.send(range(1, 101))
    figures = tmp_path / "prom"
    assert eventually(lambda: any("over_quota" in path.read_text() for path in figures.glob("*.prom")))
    counts = daemon.stop()
    assert 0 < len(captured(tmp_path / "captures").records) == 100 - counts["over_quota"] < 100
    assert 0 < counts["held_bytes"] <= counts["quota_bytes"] == 2000
    alarms = [line for line in daemon.log if "ALARM" in line]
    assert "raise [collect] quota" in alarms[0] and len(alarms) == 2


def test_captures_that_were_pulled_are_deleted_in_their_time(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    names = [f"gstream-{number:012d}-20231114T221320Z.capture" for number in range(1, 5)]
    for number, name in enumerate(names, 1):
        (folder / name).write_bytes(frame(1_700_000_000, 40_000, datagram(number)))
    first, second, *later = (folder / name for name in names)
    noon = parse_as_of("2026-03-01T12:00:00Z")
    for path in (first, second, folder / "notes.txt", folder / "gstream-1.capture.part"):
        path.touch()
        os.utime(path, (noon, noon))
    (folder / "notes.txt").write_bytes(first.read_bytes())

    def pulled(day: str, *words: str) -> dict[str, Any]:
        command = ["pull", "--source", "xcache_gstream", "--input", str(folder), "--day", day, *words]
        summary: dict[str, Any] = asked(*command, "--tables", tmp_path / "tables")
        return summary

    assert pulled("2026-03-17")["n_removed"] == 0  # nothing is marked
    assert pulled("2026-03-15", "--new-only")["n_removed"] == 0  # 14 days after are not over
    assert first.exists()
    second.write_bytes(second.read_bytes() + b"more\n")  # not what was pulled
    os.utime(second, (noon + 1, noon + 1))
    assert [mark.input.rpartition("/")[2] for mark in marked(tmp_path)].count(second.name) == 0
    summary = pulled("2026-03-17", "--new-only")
    assert (summary["n_removed"], summary["n_not_removed"]) == (2, 0)
    left = {"gstream-1.capture.part", "notes.txt", *(path.name for path in later)}
    assert {path.name for path in folder.iterdir()} == left


def test_a_capture_that_may_not_be_deleted_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    old = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    mark = Mark(f"file:{tmp_path}/file/gstream-000000000001-20260301T000000Z.capture", 1, old)
    assert pull.remove_captures([mark], before_s=int(old.timestamp()) + 1) == (0, 1)
    assert pull.remove_captures([mark], before_s=int(old.timestamp())) == (0, 0)


def test_a_capture_whose_name_is_a_path_when_it_is_decoded_deletes_no_other(tmp_path: Path) -> None:
    (tmp_path / "drop").mkdir()
    for name in ("gstream-1.capture", "drop/%2e%2e%2fgstream-1.capture"):
        (tmp_path / name).write_text("")
    (mark,) = LocalEngine().inputs(str(tmp_path / "drop"), whole=False)
    assert pull.remove_captures([mark], before_s=2**40) == (0, 0)
    assert (tmp_path / "gstream-1.capture").exists()


def marked(tmp_path: Path) -> list[Mark]:
    tables, folder = Tables(str(tmp_path / "tables")), str(tmp_path / "captures")
    return pull_input.taken(LocalEngine(), tables, Request("xcache_gstream", folder, Site()))


def test_a_name_that_is_no_text_costs_its_own_row_alone(start: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon = start()
    halves = {3: b"\xed\xa0\x80", 4: b"\\ud800"}
    for number in range(1, 6):
        whole = datagram(number, lfn="/store/HERE" if number in halves else "")
        daemon.socket.send(whole.replace(b"HERE", halves.get(number, b"")))
    daemon.stop()
    words = ["--tables", str(tmp_path / "tables"), "--day", "2023-11-15"]
    command = ["pull", "--source", "xcache_gstream", "--input", str(tmp_path / "captures"), *words]
    for more, expected in ((["--new-only"], (5, 3)), ([], (5, 0))):
        summary = asked(*command, *more)
        assert (summary["n_rows"], summary["n_new"]) == expected
        assert summary["n_rejected"] == {"malformed record": 2}


def test_two_collectors_of_one_folder_or_port_are_refused(
    start: Callable[..., Daemon], tmp_path: Path
) -> None:
    daemon = start()
    port = daemon.socket.getpeername()[1]
    command = [*COMMAND, "collect", "--port", str(port)]
    for out, words in (
        ("captures", f"another collect (process {daemon.process.pid})"),
        ("else", "cannot listen"),
    ):
        answer = subprocess.run(
            [*command, "--out", str(tmp_path / out)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.startswith("error: ") and words in answer.stderr.replace("\n", " ")
    daemon.stop()


def test_a_reader_takes_no_file_that_is_being_written(tmp_path: Path) -> None:
    for name in ("b.capture", "a.capture", "c.capture.part", ".collect.lock"):
        (tmp_path / name).write_text("")
    (tmp_path / "folder").mkdir()

    def names(path: str) -> list[str]:
        return [file.path.name for file in finished_in(places_at(path))]

    assert names(str(tmp_path)) == ["a.capture", "b.capture"]
    assert names(f"{tmp_path}/[abf]*") == ["a.capture", "b.capture"]
    assert names(str(tmp_path / "c.capture.part")) == ["c.capture.part"]
    with pytest.raises(InputError, match="nothing"):
        places_at(str(tmp_path / "nothing*"))
