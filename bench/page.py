"""The benchmarks page: runs benches, and writes what they print with its command, commit and date.

bench/page.py                    every bench of the page, one after the other (several hours)
bench/page.py replay readers     only these; the other sections stay as they are
bench/page.py --list             the benches of the page
bench/page.py --busy NAME ...    also beside other work; the section says so

It begins none that measures time while other programs keep more than half a core busy.

Each section of docs/benchmarks.md is one run of one command on one machine. A bench that fails makes the exit
code 1: its section says so, or stays as it was if nothing was printed.

Needs the environment that `make verify` makes: .venv/bin/python bench/page.py
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
TIMEOUT_S = 3 * 3600
MOST_BUSY_CORES = 0.5
QUIET_WITHIN_S, LOOK_S = 300, 5.0

HEAD = """\
# Benchmarks

Every figure of the documentation is here, as the bench printed it. `make benchmarks` runs all benches and
rewrites this page; `make benchmarks ONLY="replay readers"` renews single sections. Ratios within one run can
be compared between machines, absolute figures only within a section. Benches run in the environment that
`make verify` makes, for example `.venv/bin/python bench/replay_speed.py`. A section is left out while it is
older than the code that it measures; `.venv/bin/python bench/page.py --list` has all benches. What a section
says of busy cores was measured just before it began. Drills, which hold or do not, are in `make verify`.
"""


class Headline(NamedTuple):
    """A row of the table on top: what is measured, and where the bench's section has its figures.

    `pattern`: a regular expression with the groups `ours`, `anchor` and `ratio`, of which the last two may be
    missing; `limit`: what no program can pass, or what is promised.
    """

    bench: str
    what: str
    pattern: str
    anchor: str
    limit: str


HEADLINES = (
    Headline(
        "replay",
        "replay of LRU, M accesses/s on one core",
        r"(?m)^lru +(?P<ours>[\d.]+) +(?P<anchor>[\d.]+) +(?P<ratio>[\d.]+)",
        "libCacheSim's C loop",
        "promised 3 x",
    ),
    Headline(
        "public",
        "gap to the bound that the steward closes, two public traces",
        r"(?s)\n\| steward \| (?P<ours>\d+%).*?\n\| (?P<anchor>libcachesim-\S+ \| \d+%)",
        "the best of the others:",
        "100%, which none reaches",
    ),
    Headline(
        "readers",
        "Rucio traces read and merged, records/s and core",
        r"(?m)^local: reader and merge +(?P<ours>\d+) .*?(?P<ratio>[\d.]+) of the limit",
        "bare parsing",
        "1 x",
    ),
    Headline(
        "features",
        "features rebuilt, k accesses/s",
        r"(?ms)rows: here +(?P<ours>\d+) k/s.*DuckDB, two cores +(?P<anchor>\d+) k/s.*"
        r"rebuild here / DuckDB +(?P<ratio>[\d.]+)",
        "DuckDB's counts alone",
        "asked: 2 x its time",
    ),
    Headline(
        "scoring",
        "scores/s on two cores",
        r"native: +(?P<anchor>[\d,]+) scores.*\n *here, from parquet: +(?P<ours>[\d,]+) scores/s, "
        r"(?P<ratio>\d+%) of native",
        "LightGBM's own prediction",
        "asked: 5 x",
    ),
    Headline(
        "push",
        "files pushed and verified, of plain copies' rate",
        r"push: (?P<ours>[\d.]+) files/s(?s:.*)push/copy: (?P<ratio>[\d.]+)",
        "XRootD's CopyProcess",
        "promised 0.9 x",
    ),
    Headline(
        "push",
        "items through the journal, PostgreSQL with fsync, items/s",
        r"(?m)^PostgreSQL: .*?(?P<ours>[\d,]+)/s pushed "
        r"\((?P<ratio>[\d.]+) of bare updates, (?P<anchor>[\d,]+)/s",
        "bare updates",
        "promised 2 000/s",
    ),
    Headline(
        "serve",
        "placement of a dataset, requests/s",
        r"(?m)^/ds +(?P<ours>\d+)/s, plain FastAPI (?P<anchor>\d+)/s: (?P<ratio>[\d.]+) x",
        "plain FastAPI",
        "asked: 4 x",
    ),
    Headline(
        "plan",
        "a million candidates for five caches of a federation planned, s",
        r"(?m)^federation: .*?, (?P<ours>[\d.]+) s with",
        "–",
        "promised 30 s",
    ),
    Headline(
        "steward-million",
        "a steward's start beside a million files, s",
        r"starts in (?P<ours>[\d.]+) s",
        "–",
        "asked: 15 s",
    ),
)
"""The table on top of the page."""


class Bench(NamedTuple):
    """One section of the page: its name, its title, and the words after `bench/`.

    `timed`: whether its figures depend on what else the machine does.
    """

    name: str
    title: str
    words: str
    timed: bool = True


BENCHES = (
    Bench("replay", "Replay: speed beside libCacheSim's C loop", "replay_speed.py"),
    Bench("equality", "Replay: miss ratios beside libCacheSim's", "replay_speed.py --exact", timed=False),
    Bench("large-trace", "Trace commands: time and memory on ten million accesses", "large_trace.py"),
    Bench("xcache-purge", "Replay: purges beside a real XCache", "xcache_purge.py", timed=False),
    Bench(
        "xcache-newer", "Replay: purges beside XRootD 6.2.1", "xcache_purge.py --xrootd 6.2.1", timed=False
    ),
    Bench("workload", "Workload: published and produced figures", "calibrate.py", timed=False),
    Bench("readers", "Pull: the reader of Rucio traces", "readers.py"),
    Bench("hosts", "Scan and collect: cinfo files and f-stream datagrams", "hosts.py"),
    Bench("collect", "Collect: datagrams kept at rising rates", "collect.py"),
    Bench("features", "Features: a cycle carried and rebuilt, beside DuckDB", "feature_speed.py"),
    Bench(
        "features-large",
        "Features: ten million accesses rebuilt, in one process, with Spark and by DuckDB",
        "feature_speed.py --accesses 10000000 --rebuild",
    ),
    Bench(
        "cluster",
        "Spark: a month on a standalone cluster and HDFS, beside one process",
        "cluster.py --accesses 2000000 7100000 --workers 2",
        timed=False,
    ),
    Bench(
        "cluster-sizes",
        "Spark: MWT2's month on one, two and four workers, and on YARN",
        "cluster.py --accesses 7100000 --workers 1 2 4 --yarn",
        timed=False,
    ),
    Bench("scoring", "Models: rows scored per second", "scoring.py"),
    Bench("training", "Models: time to learn from five million rows", "scoring.py train"),
    Bench("forecast", "Forecast: public popularity series", "forecast.py", timed=False),
    Bench("plan", "Plan: a million candidates", "plan.py"),
    Bench(
        "evaluate",
        "Evaluate: the whole service on 400 000 accesses, three capacities",
        "large_evaluation.py",
    ),
    Bench(
        "evaluate-month",
        "Evaluate: the whole service on MWT2's month, planned each hour",
        "large_evaluation.py --month",
    ),
    Bench("public", "Evaluate: every policy on two public traces", "leaderboard.py --public", timed=False),
    Bench("leaderboard", "Evaluate: every policy on the generated regions", "leaderboard.py", timed=False),
    Bench("order", "Evaluate: the gap that the learned order closes", "order_gaps.py", timed=False),
    Bench("weeks", "Evaluate: an order of eviction replaced each week", "weeks.py", timed=False),
    Bench(
        "queue", "Evaluate: what a batch queue is worth to the learned order", "queue_leads.py", timed=False
    ),
    Bench("lists", "Plan: what lists are worth, with a queue and with a steward", "lists_worth.py"),
    Bench("papers", "Papers: their figures, and our answers to the same questions", "papers.py", timed=False),
    Bench("push", "Push: beside plain copies, and a large journal", "push.py"),
    Bench("site-test", "Site test: reads at distances, beside CERN's, PIC's and DOMA's", "site_test.py"),
    Bench("serve", "Placement service: requests per second", "serve.py"),
    Bench("dags", "Airflow: parsing the DAGs", "dag_speed.py", timed=False),
    Bench("steward-million", "Steward: its start beside a million files", "steward_million.py"),
)


def main() -> None:
    """Run the benches asked for, and write the page after each, so that none is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="sections to renew; all without any")
    parser.add_argument("--list", action="store_true", help="list the benches of the page")
    parser.add_argument("--busy", action="store_true", help="measure beside other work too")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{bench.name:16}{bench.title}: bench/{bench.words}" for bench in BENCHES))
        return
    known = {bench.name: bench for bench in BENCHES}
    if unknown := sorted(set(options.names) - known.keys()):
        parser.error(f"there is no bench {unknown[0]!r}; there are {', '.join(known)}")
    failed = [name for name in options.names or known if not _renew(known[name], options.busy)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def sections(page: str) -> dict[str, str]:
    """The sections of a page by bench name, each with its heading and mark."""
    pieces = re.split(r"(?m)^(?=<!-- bench: [a-z-]+ -->$)", page)
    return {text.removeprefix("<!-- bench: ").partition(" ")[0]: text for text in pieces[1:]}


def headlines(known: dict[str, str]) -> str:
    """The table on top, of the sections that the page has."""
    rows = ["| what | ours | beside it | ratio | limit |", "|---|---|---|---|---|"]
    for line in HEADLINES:
        if line.bench not in known:
            continue
        figures = re.search(line.pattern, known[line.bench])
        if figures is None:
            raise SystemExit(f"{line.bench}: its section has no figure of {line.what!r}: correct HEADLINES")
        values = figures.groupdict()
        beside = " ".join(word for word in (line.anchor, values.get("anchor")) if word).replace(" |", "")
        rows.append(
            f"| {line.what} | {values['ours']} | {beside} | {values.get('ratio', '–')} | {line.limit} |"
        )
    return "\n".join(rows) + "\n"


def busy_cores() -> float:
    """Cores that were busy during a few seconds in which this process did nothing."""

    def ticks() -> tuple[int, int]:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        return sum(fields[:8]), fields[3] + fields[4]

    before = ticks()
    time.sleep(LOOK_S)
    after = ticks()
    passed, idle = after[0] - before[0], after[1] - before[1]
    return (1 - idle / max(passed, 1)) * (os.cpu_count() or 1)


def quiet(*, also_busy: bool) -> float:
    """Wait until the machine is quiet; the cores that others use. Ends the program if it stays busy."""
    until = time.monotonic() + QUIET_WITHIN_S
    while (busy := busy_cores()) > MOST_BUSY_CORES and not also_busy:
        if time.monotonic() > until:
            raise SystemExit(
                f"other programs keep {busy:.1f} cores busy: figures of speed would be theirs too; end "
                "them, or give --busy, and the section says so"
            )
    return busy


def _renew(bench: Bench, also_busy: bool) -> bool:
    """Run a bench, and write its section; whether it ended well."""
    busy = quiet(also_busy=also_busy) if bench.timed else 0.0
    command = [sys.executable, f"bench/{bench.words.split()[0]}", *bench.words.split()[1:]]
    print(f"{bench.name}: bench/{bench.words}", file=sys.stderr, flush=True)
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT_S
    )
    if not done.stdout.strip():
        return False
    known = sections(PAGE.read_text()) if PAGE.exists() else {}
    known[bench.name] = _section(bench, done, time.monotonic() - started, busy)
    texts = [known[bench.name] for bench in BENCHES if bench.name in known]
    PAGE.write_text("\n".join([HEAD, headlines(known), *(text.rstrip() + "\n" for text in texts)]))
    return done.returncode == 0


def _section(bench: Bench, done: subprocess.CompletedProcess[str], seconds: float, busy: float) -> str:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    failed = f", **exit code {done.returncode}: a promise does not hold**" if done.returncode else ""
    machine = (
        _machine(busy)
        if bench.timed
        else f"{os.cpu_count()} cores, beside what else ran, which its figures do not depend on"
    )
    run = f"`.venv/bin/python bench/{bench.words}`, {_commit()}, {today}, {machine}, {seconds:.0f} s"
    return "\n".join(
        [
            f"<!-- bench: {bench.name} -->",
            f"## {bench.title}",
            "",
            f"{run}{failed}",
            "",
            "```",
            done.stdout.strip("\n"),
            "```",
            "",
        ]
    )


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    changed = git("status", "--porcelain", "--", "*.py").strip()
    return f"commit {git('rev-parse', '--short', 'HEAD').strip()}{' with changes' if changed else ''}"


def _machine(busy: float) -> str:
    beside = f", {busy:.1f} cores busy beside it" if busy > MOST_BUSY_CORES else ", quiet"
    return f"{os.cpu_count()} cores, Python {platform.python_version()}{beside}"


if __name__ == "__main__":
    main()
