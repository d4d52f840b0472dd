"""The benchmarks page: runs benches, and writes what they print with its command, commit and date.

bench/page.py                    every bench of the page, one after the other (several hours)
bench/page.py replay readers     only these; the other sections stay as they are
bench/page.py --list             the benches of the page

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

HEAD = """\
# Benchmarks

Every figure of the documentation is here, as the bench printed it. `make benchmarks` runs all benches and
rewrites this page; `make benchmarks ONLY="replay readers"` renews single sections. Ratios within one run can
be compared between machines, absolute figures only within a section. Benches run in the environment that
`make verify` makes, for example `.venv/bin/python bench/replay_speed.py`. A section is left out while it is
older than the code that it measures; `.venv/bin/python bench/page.py --list` has all benches.
"""


class Bench(NamedTuple):
    """One section of the page: its name, its title, and the words after `bench/`."""

    name: str
    title: str
    words: str


BENCHES = (
    Bench("replay", "Replay: speed beside libCacheSim's C loop", "replay_speed.py"),
    Bench("equality", "Replay: miss ratios beside libCacheSim's", "replay_speed.py --exact"),
    Bench("large-trace", "Trace commands: time and memory on ten million accesses", "large_trace.py"),
    Bench("xcache-purge", "Replay: purges beside a real XCache", "xcache_purge.py"),
    Bench("workload", "Workload: published and produced figures", "calibrate.py"),
    Bench("readers", "Pull: the reader of Rucio traces", "readers.py"),
    Bench("hosts", "Scan and collect: cinfo files and f-stream datagrams", "hosts.py"),
    Bench("collect", "Collect: datagrams kept at rising rates", "collect.py"),
    Bench("features", "Features: a cycle carried and rebuilt, beside DuckDB", "feature_speed.py"),
    Bench("scoring", "Models: rows scored per second", "scoring.py"),
    Bench("training", "Models: time to learn from five million rows", "scoring.py train"),
    Bench("forecast", "Forecast: public popularity series", "forecast.py"),
    Bench("plan", "Plan: a million candidates", "plan.py"),
    Bench("public", "Evaluate: every policy on two public traces", "leaderboard.py --public"),
    Bench("leaderboard", "Evaluate: every policy on the generated regions", "leaderboard.py"),
    Bench("order", "Evaluate: the gap that the learned order closes", "order_gaps.py"),
    Bench("weeks", "Evaluate: an order of eviction replaced each week", "weeks.py"),
    Bench("queue", "Evaluate: what a batch queue is worth to the learned order", "queue_leads.py"),
    Bench("lists", "Plan: what lists are worth, with a queue and with a steward", "lists_worth.py"),
    Bench("papers", "Papers: their figures, and our answers to the same questions", "papers.py"),
    Bench("push", "Push: beside plain copies, and a large journal", "push.py"),
    Bench("site-test", "Site test: reads at distances, beside CERN's, PIC's and DOMA's", "site_test.py"),
    Bench("serve", "Placement service: requests per second", "serve.py"),
    Bench("dags", "Airflow: parsing the DAGs", "dag_speed.py"),
    Bench("fuzz", "Trust: fuzzed parsers", "fuzz.py"),
    Bench("fuzz-sources", "Trust: damaged lines", "fuzz_sources.py"),
    Bench("drill", "Trust: fault drills", "drill.py"),
    Bench("drill-steward", "Trust: drills of the steward beside real XCaches", "drill_steward.py"),
    Bench("drill-attacker", "Trust: an attacker beside a steward and a real XCache", "drill_attacker.py"),
    Bench(
        "attacker-new",
        "Trust: an attacker beside a steward and XRootD 6.2.1",
        "drill_attacker.py --xrootd 6.2.1 --minutes 5",
    ),
    Bench("drill-tokens", "Trust: an hour by tokens of ten minutes", "drill_tokens.py"),
    Bench("steward-million", "Trust: a steward beside a million files", "steward_million.py"),
    Bench("two-hosts", "Trust: a controller and a cache on two hosts, with cuts", "two_hosts.py"),
    Bench("airflow-day", "Trust: a day of a real Airflow", "airflow_day.py"),
)


def main() -> None:
    """Run the benches asked for, and write the page after each, so that none is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="sections to renew; all without any")
    parser.add_argument("--list", action="store_true", help="list the benches of the page")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(f"{bench.name:16}{bench.title}: bench/{bench.words}" for bench in BENCHES))
        return
    known = {bench.name: bench for bench in BENCHES}
    if unknown := sorted(set(asked.names) - known.keys()):
        parser.error(f"there is no bench {unknown[0]!r}; there are {', '.join(known)}")
    failed = [name for name in asked.names or known if not _renew(known[name])]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def sections(page: str) -> dict[str, str]:
    """The sections of a page by bench name, each with its heading and mark."""
    found = re.split(r"(?m)^(?=<!-- bench: [a-z-]+ -->$)", page)
    return {text.removeprefix("<!-- bench: ").partition(" ")[0]: text for text in found[1:]}


def _renew(bench: Bench) -> bool:
    """Run a bench, and write its section; whether it ended well."""
    command = [sys.executable, f"bench/{bench.words.split()[0]}", *bench.words.split()[1:]]
    print(f"{bench.name}: bench/{bench.words}", file=sys.stderr, flush=True)
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT_S
    )
    if not done.stdout.strip():
        return False
    known = sections(PAGE.read_text()) if PAGE.exists() else {}
    known[bench.name] = _section(bench, done, time.monotonic() - started)
    kept = [known[one.name] for one in BENCHES if one.name in known]
    PAGE.write_text("\n".join([HEAD, *(text.rstrip() + "\n" for text in kept)]))
    return done.returncode == 0


def _section(bench: Bench, done: subprocess.CompletedProcess[str], seconds: float) -> str:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    failed = f", **exit code {done.returncode}: a promise does not hold**" if done.returncode else ""
    run = f"`.venv/bin/python bench/{bench.words}`, {_commit()}, {today}, {_machine()}, {seconds:.0f} s"
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


def _machine() -> str:
    load = os.getloadavg()[1]
    busy = f", load {load:.1f} beside it" if load > (os.cpu_count() or 1) else ""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}{busy}"


if __name__ == "__main__":
    main()
