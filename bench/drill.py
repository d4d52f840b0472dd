"""Fault drills: processes killed, disks full, clocks wrong, a database gone, poisoned input; what survives.

bench/drill.py [--minutes M] [--days D] [--seed S] [--only FAULT ...]      exit code 1 if an invariant breaks

A small site of simulated days is worked through twice by the real commands: once left in peace, once with
faults. After each fault the command is simply run again. What must hold is checked after each: no access
lost or doubled, no file pushed twice, no pin over the limit, tables equal to those of the site left in peace.
Every fault is drilled once; what is left of `--minutes` goes to further rounds at other random points.

Needs the environment that `make verify` makes: .venv/bin/python bench/drill.py
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime as dt
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

from drill_site import (  # noqa: E402
    PATIENCE_S,
    Broken,
    Site,
    check_push,
    free_port,
    killed,
    poison,
    rows_of,
    run,
    send,
    start,
    traces,
    until_listening,
)
from monitoring import Sender, close  # noqa: E402

from features.schema import ACCESSES, PLANS, RECEIPTS, REJECTS, Table  # noqa: E402
from jobs.ground.settings.tree import Settings  # noqa: E402

_STACK = "Traceback (most recent call last)"


@dataclasses.dataclass
class Outcome:
    """One row of the table: faults done, and of those survived; `why` of the first that was not."""

    process: str
    done: int = 0
    survived: int = 0
    why: str = ""


class Drill:
    """Two sites with the same days: `peace` and `war`."""

    def __init__(self, folder: Path, days: int, seed: int) -> None:
        as_of_s = int(time.time()) // 3600 * 3600
        self.chance, self.days = random.Random(seed), days
        self.peace, self.war = (Site(folder / name, days, as_of_s) for name in ("peace", "war"))
        self.took_s: dict[str, float] = {}
        self.rows: dict[str, Outcome] = {}

    def in_peace(self) -> None:
        """Work through the days without a fault, and note how long each step takes."""
        for day in range(self.days):
            self.timed("pull", day)
        self.timed("features")
        self.peace.predict()
        self.timed("plan")
        self.timed("push")
        check_push(self.peace)

    def timed(self, step: str, day: int = 0) -> None:
        """One step of the site in peace."""
        began = time.monotonic()
        run(self.peace, *self.peace.words(step, day))
        self.took_s[step] = time.monotonic() - began

    def faults(self) -> dict[str, tuple[str, Callable[[], None]]]:
        """Every fault: the process that it hits, and the drill."""
        return {
            "kill -9 pull": ("pull", lambda: self.spark_step("pull", self.killed)),
            "kill -9 features": ("features", lambda: self.spark_step("features", self.killed)),
            "kill -9 plan": ("plan", lambda: self.push_step("plan", self.killed)),
            "kill -9 push": ("push", lambda: self.push_step("push", self.killed)),
            "disk full": ("pull", lambda: self.spark_step("pull", self.full)),
            "disk full, features": ("features", lambda: self.spark_step("features", self.full)),
            "disk full, push": ("push", lambda: self.push_step("push", self.full)),
            "clock 3 days back": ("pull", lambda: self.clocks(-3)),
            "clock 400 days on": ("pull", lambda: self.clocks(400)),
            "clock back, push": ("push", lambda: self.push_step("push", self.clock_back)),
            "poisoned records": ("pull", self.poisoned),
            "input cut short": ("pull", self.cut),
            "database gone": ("push", self.database_gone),
            "kill -9 collect": ("collect", self.collect),
            "kill -9 serve": ("serve", self.serve),
        }

    def once(self, name: str) -> None:
        """Drill one fault, and note how it went."""
        process, drill = self.faults()[name]
        row = self.rows.setdefault(name, Outcome(process))
        row.done += 1
        try:
            drill()
            row.survived += 1
        except (Broken, subprocess.TimeoutExpired, OSError) as error:
            row.why = row.why or f"{type(error).__name__}: {error}"
        print(f"  {name}: {'survived' if not row.why else row.why}", flush=True)

    def killed(self, site: Site, step: str, day: int) -> None:
        """Kill a step until it was hit in its work, twice at most."""
        for _ in range(2):
            killed(site, self.chance, self.took_s[step], *site.words(step, day))

    def full(self, site: Site, step: str, day: int) -> None:
        """Let a step run where no file may grow beyond a few kilobytes; it must say so in one line."""
        process = start(site, *site.words(step, day), longest_file=self.chance.choice([0, 1, 6]))
        output, _ = process.communicate(timeout=PATIENCE_S)
        if process.returncode == 0 or _STACK in output:
            raise Broken(f"{step} on a full disk ended with {process.returncode}: {output.strip()[-300:]}")

    def clock_back(self, site: Site, step: str, day: int) -> None:
        """Let a step run a day before the plan was made."""
        process = start(site, *site.words(step, day), clock_days=-1)
        process.communicate(timeout=PATIENCE_S)

    def spark_step(self, step: str, fault: Callable[[Site, str, int], None]) -> None:
        """Days pulled and features made anew, with the fault in one of them; equal to peace."""
        self.fresh()
        hit = self.chance.randrange(self.days)
        for day in range(self.days):
            if step == "pull" and day == hit:
                fault(self.war, "pull", day)
            run(self.war, *self.war.words("pull", day))
        if step == "features":
            fault(self.war, "features", 0)
            run(self.war, *self.war.words("features"))
            self.equal(Settings.load(self.war.folder / "site.toml", env={}).features.spec.features_table)
        self.equal(ACCESSES, REJECTS)

    def push_step(self, step: str, fault: Callable[[Site, str, int], None]) -> None:
        """A plan made and pushed anew, with the fault in it."""
        self.fresh(keep_tables=True)
        if step == "plan":
            fault(self.war, "plan", 0)
        run(self.war, *self.war.words("plan"))
        self.equal(PLANS)
        if step == "push":
            fault(self.war, "push", 0)
        run(self.war, *self.war.words("push"))
        check_push(self.war)

    def clocks(self, days: int) -> None:
        """Days pulled under a clock that is wrong."""
        self.fresh()
        for day in range(self.days):
            run(self.war, *self.war.words("pull", day), clock_days=days if day else 0)
        self.equal(ACCESSES, REJECTS)

    def poisoned(self) -> None:
        """Lines that mean harm among the good ones: each is counted, none is taken, none is in the way."""
        self.fresh()
        good = [line for line in traces(0, self.war.day_s(0)).split(b"\n") if line]
        bad = poison(good[0])
        lines = [*good, *bad]
        self.chance.shuffle(lines)
        self.war.raw(0).write_bytes(b"\n".join(lines) + b"\n")
        for day in range(self.days):
            run(self.war, *self.war.words("pull", day))
        self.war.raw(0).write_bytes(traces(0, self.war.day_s(0)))
        self.equal(ACCESSES)
        n_rejected = sum(row["n_rows"] for row in self.war.tables.read_arrow(REJECTS).to_pylist())
        if n_rejected != len(bad):
            raise Broken(f"{len(bad)} poisoned lines, {n_rejected} counted")

    def cut(self) -> None:
        """A file that is still being copied, then whole: what it held is taken once."""
        self.fresh()
        whole = self.war.raw(0).read_bytes()
        self.war.raw(0).write_bytes(whole[: len(whole) * 2 // 3 + 17])
        run(self.war, *self.war.words("pull", 0))
        self.war.raw(0).write_bytes(whole)
        for day in range(self.days):
            run(self.war, *self.war.words("pull", day))
        self.equal(ACCESSES)

    def database_gone(self) -> None:
        """A push whose PostgreSQL is stopped under it, and comes back."""
        from postgres_server import running  # noqa: PLC0415  needs the package

        self.fresh(keep_tables=True)
        run(self.war, *self.war.words("plan"))
        with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as postgres:
            Path(folder).chmod(0o755)
            usual, self.war.journal = self.war.journal, postgres.url
            try:
                process = start(self.war, *self.war.words("push"))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=self.chance.uniform(0.3, 0.9) * self.took_s["push"])
                postgres.stop()
                output, _ = process.communicate(timeout=PATIENCE_S)
                postgres.start()
                if _STACK in output or "not-shown" in output:
                    raise Broken(f"the push died without a word of ours: {output[-300:]}")
                run(self.war, *self.war.words("push"))
            finally:
                self.war.journal = usual
        check_push(self.war)

    def collect(self) -> None:
        """Datagrams at a collector that is killed: each is in a capture, or counted as lost."""
        from prefetch.xcache.gstream import FolderReader  # noqa: PLC0415

        folder, port = self.war.folder / "captures", free_port()
        shutil.rmtree(folder, ignore_errors=True)
        words = ("collect", "--out", str(folder), "--port", str(port), "--roll-every", "2s")
        cache, n_sent = Sender("h", 1, "i", "s", 1, 1), 0
        for life in range(3):
            process = start(self.war, *words)
            until_listening(process)
            for _ in range(60):
                n_sent += 1
                send(cache.gstream(close(f"/f{n_sent}", 5, 2), ahead=n_sent) + b"\0", port)
                time.sleep(0.005)
            os.killpg(process.pid, signal.SIGKILL if life < 2 else signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)
        reader = FolderReader(folder)
        events = [*reader.poll(), *reader.poll(), *reader.poll()]
        n_by_pseq = Counter(event.pseq for event in events)
        if max(n_by_pseq.values()) > 1:
            raise Broken("a datagram was kept twice")
        if len(n_by_pseq) + reader.n_lost < n_sent - 1 or len(n_by_pseq) < n_sent // 2:
            raise Broken(f"{n_sent} datagrams sent, {len(n_by_pseq)} kept, {reader.n_lost} counted as lost")

    def serve(self) -> None:
        """Changes that the placement service has confirmed are there after a kill."""
        from placement_server import serving  # noqa: PLC0415

        database = self.war.folder / "placement.db"
        database.unlink(missing_ok=True)
        confirmed: dict[str, str] = {}
        for life in range(3):
            with serving(database) as server:
                server.beat("xc1")
                with server.client() as client:
                    if client.get("/serve").json() != confirmed:
                        raise Broken(f"confirmed {confirmed}, found {client.get('/serve').json()}")
                    for i in range(self.chance.randint(1, 5)):
                        body = {"client": f"T{life}-{i}", "cache_site": "EDGE"}
                        client.put("/serve", json=body).raise_for_status()
                        confirmed[body["client"]] = "EDGE"
                assert server.process is not None
                server.process.send_signal(signal.SIGKILL)

    def fresh(self, *, keep_tables: bool = False) -> None:
        """The site at war with nothing pulled, planned or pushed; or with all that a plan needs."""
        war = self.war.folder
        shutil.rmtree(war / "tables", ignore_errors=True)
        self.war.fill()
        for path in war.glob("journal.db*"):
            path.unlink()
        if keep_tables:
            shutil.copytree(self.peace.folder / "tables", war / "tables")
            for table in (PLANS, RECEIPTS):
                shutil.rmtree(war / "tables" / table.name, ignore_errors=True)

    def equal(self, *tables: Table) -> None:
        """Raise Broken where a table of the two sites differs."""
        for table in tables:
            ids = [rows_of(site, table) for site in (self.peace, self.war)]
            if ids[0] != ids[1]:
                raise Broken(f"{table.name} differs: {len(ids[0])} and {len(ids[1])} rows")


def table(rows: dict[str, Outcome]) -> str:
    """The faults as a Markdown table."""
    lines = ["| fault | process | times | survived |", "|---|---|---:|---:|"]
    lines += [f"| {name} | {row.process} | {row.done} | {row.survived} |" for name, row in rows.items()]
    return "\n".join(lines)


def main() -> int:
    """Drill until the time is up; 1 if anything broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="every fault is drilled once at least")
    parser.add_argument("--days", type=int, default=2, help="simulated days")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="one fault, instead of all; may be repeated")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="cachecast-drill-") as folder:
        drill = Drill(Path(folder), options.days, options.seed)
        drill.in_peace()
        took = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in drill.took_s.items())
        print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}: in peace: {took}", flush=True)
        faults = options.only or list(drill.faults())
        for name in faults:
            drill.once(name)
        while time.monotonic() < until:
            drill.once(drill.chance.choice(faults))
    print(table(drill.rows))
    broken = {name: row for name, row in drill.rows.items() if row.done > row.survived}
    for name, row in broken.items():
        print(f"BROKEN {name}: {row.why}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
