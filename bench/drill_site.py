"""The small site of the fault drills (bench/drill.py): its days, its commands, and what is done to them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from features.common.times import as_of_label, day_label
from features.schema import PLANS, PREDICTIONS, RECEIPTS, Table
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables

ROOT = Path(__file__).resolve().parents[1]
N_FILES, SIZE, CAPACITY = 40, 4000, 120_000
HELD = range(5, 33)
CACHE = "d"
PATIENCE_S = 600
_OFF = (
    "import datetime as d, time_machine as t; t.travel(d.datetime.now(d.UTC) + d.timedelta({days})).start(); "
)


class Broken(Exception):
    """An invariant does not hold."""


class Site:
    """A folder with everything of one site: origin, cache, tables, journal, settings and raw days."""

    def __init__(self, folder: Path, days: int, as_of_s: int) -> None:
        self.folder, self.days, self.as_of_s = folder, days, as_of_s
        self.journal = f"{folder}/journal.db"
        for number in range(N_FILES):
            path = folder / "origin" / lfn(number)[1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(number.to_bytes(4, "big") * (SIZE // 4))
        for day in range(days):
            self.raw(day).write_bytes(traces(day, self.day_s(day)))
        (folder / "site.toml").write_text(
            f'[tables]\nroot = "{folder}/tables"\n[features]\ncycle = "1h"\n'
            '[spark]\nmaster = "local[1]"\ndriver_memory = "1g"\nshuffle_partitions = 2\n'
            f'[caches.{CACHE}]\nname = "{CACHE}"\nkind = "directory"\nurl = "{folder}/cache"\n'
            f'origin = "{folder}/origin"\ncapacity = {CAPACITY}\nevict_guard = "0s"\n'
            "[plan]\nassumed_inflow = 0.5\nprefetch_share = 0.5\ncontrol_share = 0.0\nmodel_weight = 1.0\n"
        )
        self.fill()

    def fill(self) -> None:
        """The cache as it was found: some files, the last numbers used last; plans evict others than LRU."""
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        for number in HELD:
            path = self.held(lfn(number))
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.folder / "origin" / lfn(number)[1:], path)
            os.utime(path, (self.as_of_s - 3600 * (N_FILES - number),) * 2)

    def held(self, name: str) -> Path:
        """Where the cache keeps a file."""
        return self.folder / "cache" / "files" / name[1:]

    @property
    def tables(self) -> Tables:
        """Its tables, opened anew."""
        return Tables(f"{self.folder}/tables")

    def raw(self, day: int) -> Path:
        """The traces of a day."""
        return self.folder / f"traces-{day}.json"

    def day_s(self, day: int) -> int:
        """The first second of a day; the plan is made after the last."""
        return self.as_of_s // 86400 * 86400 - (self.days - day) * 86400

    def words(self, step: str, day: int = 0) -> list[str]:
        """A step as it is typed."""
        as_of = as_of_label(self.as_of_s)
        return {
            "pull": ["pull", "--source", "rucio_traces", "--input", str(self.raw(day)), "--day",
                     day_label(self.day_s(day))],
            "features": ["features", "--as-of", as_of],
            "plan": ["plan", "--cache", CACHE, "--as-of", as_of],
            "push": ["push", "run", "--cache", CACHE, "--as-of", as_of, "--unproven"],
        }[step]  # fmt: skip

    def predict(self) -> None:
        """Predictions of a model that needs no training: the lower a file's number, the likelier a read."""
        settings = Settings.load(env={})
        rows = [
            {
                **{"did": f"cms:{lfn(number)}", "horizon_s": settings.plan.horizon},
                **{"probability": 1 - number / N_FILES, "expected_accesses": 1 - number / N_FILES},
                **{"size_bytes": SIZE, "last_read_s": 3600, "model_version": "drill/1"},
            }
            for number in range(N_FILES)
        ]
        key = (day_label(self.as_of_s), as_of_label(self.as_of_s), settings.region.name)
        self.tables.replace_rows(PREDICTIONS, rows, key)


def lfn(number: int) -> str:
    """The name of a file."""
    return f"/store/mc/Run3/A/AOD/v{number % 3}/000/f{number}.root"


def traces(day: int, day_s: int) -> bytes:
    """A day's reads, with those at its ends."""
    chance = random.Random(day)
    lines = []
    for i in range(200):
        number = min(int(chance.expovariate(0.1)), N_FILES - 1)
        at_s = day_s + i * 86399 // 199
        trace = {
            **{"eventType": "get_sm", "scope": "cms", "filename": lfn(number), "uuid": f"{day}-{i}"},
            **{"transferStart": at_s, "transferEnd": at_s + 5, "traceTimeentryUnix": at_s + 6},
            **{"clientState": "DONE", "filesize": SIZE, "localSite": "EDGE"},
        }
        lines.append(json.dumps(trace).encode())
    return b"\n".join(lines) + b"\n"


def start(
    site: Site, *words: str, clock_days: int = 0, longest_file: int | None = None
) -> subprocess.Popen[str]:
    """A command as a process at the head of a group, so that a kill takes Spark's Java with it.

    `clock_days`: how far its clock is off; Java keeps to the right one. `longest_file`: in blocks of 512
    bytes; beyond it a write fails, as on a full disk.
    """
    begin = _OFF.format(days=clock_days) if clock_days else ""
    line = [sys.executable, "-c", f"{begin}from jobs.cli.main import main; main()", *words]
    if longest_file is not None:
        line = ["sh", "-c", 'trap "" XFSZ; ulimit -f $0; exec "$@"', str(longest_file), *line]
    variables = {"CACHECAST_CONF": str(site.folder / "site.toml"), "CACHECAST_PUSH__JOURNAL": site.journal}
    return subprocess.Popen(
        line,
        env=os.environ | variables,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(site: Site, *words: str, clock_days: int = 0) -> str:
    """What a command says that must end well. Raises Broken."""
    process = start(site, *words, clock_days=clock_days)
    output, _ = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        raise Broken(f"{words[0]} ended with {process.returncode}: {output.strip()[-300:]}")
    return output


def killed(site: Site, chance: random.Random, longest_s: float, *words: str) -> bool:
    """Kill a command with SIGKILL at a random moment of its life; whether it was still at work."""
    process = start(site, *words)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=chance.uniform(0.05, 1.0) * longest_s)
        return False
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return True


def rows_of(site: Site, table: Table) -> list[str]:
    """A table's rows in one order; paths of the site do not count."""
    rows = site.tables.read_arrow(table).to_pylist() if site.tables.exists(table) else []
    return sorted(str(sorted(row.items(), key=str)).replace(str(site.folder), "") for row in rows)


def poison(good: bytes) -> list[bytes]:
    """Lines that are no access, each in its own way."""
    trace = json.loads(good)
    changes = [
        *({"filesize": size} for size in (2**62, 2**63 - 1, -1, "1e400", "x")),
        *({"transferStart": at} for at in (-1, 1e300, "yesterday", 99999999999999)),
        *({"eventType": kind} for kind in ("put", "'; DROP TABLE", "")),
        *({"uuid": None}, {"filename": ""}, {"scope": None}, {"clientState": "FAILED"}),
    ]
    noise = [b"{" * 3000, b"[]", b"null", b'"x"', b"\xff\xfe\x00{", good[:-5], b"{}", b"\x00" * 50]
    return [*(json.dumps(trace | change).encode() for change in changes), *noise]


def cache_events(site: Site) -> Iterator[bytes]:
    """The records of the directory cache's own g-stream."""
    path = site.folder / "cache" / "gstream.txt"
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    yield from (line.strip(b"\0") for line in lines if b'"file_close"' in line)


def send(content: bytes, port: int) -> None:
    """One datagram to loopback; nobody may be there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.sendto(content, ("127.0.0.1", port))


def free_port() -> int:
    """A UDP port that nobody has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until_listening(process: subprocess.Popen[str]) -> None:
    """Wait for a service's first line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if "127.0.0.1" not in line:
        raise Broken(f"the service does not listen: {line}")


def check_push(site: Site) -> None:
    """Every item has its end, no byte came twice, pins are within their limit."""
    states = Counter(row["state"] for row in site.tables.read_arrow(RECEIPTS).to_pylist())
    plan = site.tables.read_arrow(PLANS).to_pylist()
    if set(states) != {"done"} or states.total() != len(plan):
        raise Broken(f"of {len(plan)} items {dict(states)}")
    events = [json.loads(line) for line in cache_events(site)]
    fetched = Counter(event["lfn"] for event in events if event["b_miss"])
    if fetched and max(fetched.values()) > 1:
        raise Broken(f"{fetched.most_common(1)} was fetched twice")
    n_by_action = Counter(row["action"] for row in plan)
    if missing := {"prefetch", "pin", "evict"} - set(n_by_action):
        raise Broken(f"a plan without {sorted(missing)} shows nothing: {dict(n_by_action)}")
    wrong = [row["name"] for row in plan if site.held(row["name"]).is_file() == (row["action"] == "evict")]
    if wrong:
        raise Broken(f"of {dict(n_by_action)} these are not so: {wrong}")
    pinned = sum(row["size_bytes"] for row in plan if row["action"] == "pin")
    if pinned > 0.7 * CAPACITY:
        raise Broken(f"{pinned} bytes pinned of {CAPACITY}")
