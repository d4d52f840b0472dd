"""Figures of papers beside what our commands answer to the same questions; docs/papers.md explains the rows.

bench/papers.py            every row, on generated regions and the data of ../shared/data
bench/papers.py --short    small regions: whether it still runs

Needs the environment that `make verify` makes: .venv/bin/python bench/papers.py
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from replay.study.benefit import Cluster, best_cached_fraction, processing_s

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
MWT2_BYTES = 50e12
"""Of the cache that MWT2's reads were replayed through."""
GENERATED = "generated reads, calibrated to this figure"
COLD = "the month begins with an empty cache; `--from` would leave its filling out"
STORED = (
    "PIC's replicas and the reads of its own storage are not published: each file counts as stored once, on "
    "another disk too, without a rule, and as read as often as what its cache is asked for"
)
FITTED = "a tenth of the month and of the cache; generated reads, fitted to come near this figure"
MODEL = "the same equation; theirs is measured on a cluster, ours its limit"
GROWN = "one size over all months, a tenth of the region, fitted to the hits; theirs grew, and counts blocks"
PIC_SCALE = 11.4
"""Makes PIC's generated month as large as its storage, 4.6 PB."""


class Row(NamedTuple):
    """One line of the table; `ours` is what our command gave, `differs` what is not alike."""

    paper: str
    question: str
    theirs: str
    ours: str
    command: str
    differs: str


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="regions of a fiftieth of the size")
    size = 0.02 if parser.parse_args().short else 1.0
    print("| paper | question | theirs | ours | command | differs |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="cachecast-papers-") as name:
        for row in rows(Path(name), size):
            print(f"| {' | '.join(row)} |", flush=True)


def rows(folder: Path, size: float) -> Iterator[Row]:
    """The rows, in the order of docs/papers.md; `size`: of the generated regions."""
    yield from of_pic(folder / "pic", size)
    yield from of_mwt2(folder / "mwt2", 0.1 * size)
    yield from of_kit()
    yield from of_socal(folder / "socal", 0.1 * size)
    yield of_eos()


def of_pic(folder: Path, size: float) -> Iterator[Row]:
    """PIC's re-reads, its CPU hours, and its storage against its cache."""
    cachecast("workload", "--scenario", "pic", "--scale", f"{size}", "--out", folder)
    names = pq.read_table(folder / "accesses.parquet", columns=["did"])["did"].cast(pa.string())
    reread = np.mean(pc.value_counts(names).field("counts").to_numpy() > 1)
    yield Row("PIC", "files read again", "about 20 %", percent(float(reread)), "workload", GENERATED)
    capacity = f"{int(size * 175 * 2**40)}"
    page = folder / "study.html"
    read = cachecast("report", "--trace", folder, "--capacity", capacity, "--out", page)
    yield Row(
        "PIC", "bytes hit, 175 TiB", "not published", percent(read["byte_hit_ratio"]), "report --trace", COLD
    )
    large = folder / "large"
    cachecast("workload", "--scenario", "pic", "--scale", f"{PIC_SCALE * size}", "--out", large)
    words = ["--trace", large, "--from", "2026-03-08"]
    answer = cachecast("storage", *words, "--capacity", capacity)
    point = answer["points"][0]
    stored = sum(kind["stored_bytes"] for kind in answer["stored"])
    unread = sum(kind["unread_bytes"] for kind in answer["stored"])
    ours = (
        f"of {stored / 1e15:.2f} PB nobody reads {unread / 1e15:.2f}; the cache serves "
        f"{percent(point['byte_hit_ratio'])} of the bytes read of the rest, for "
        f"{point['wan_bytes_per_day'] / 1e12:.0f} TB of WAN traffic per day"
    )
    yield Row("PIC", "what 175 TiB of cache replace of 4.6 PB", "not published", ours, "storage", STORED)


def of_mwt2(folder: Path, size: float) -> Iterator[Row]:
    """The share of accesses and of traffic that a cache of 50 TB serves."""
    cachecast("workload", "--scenario", "mwt2", "--scale", f"{size}", "--out", folder)
    capacity = int(MWT2_BYTES * size)
    points = cachecast("curve", "--trace", folder, "--capacity", capacity)["points"]
    (at,) = (point for point in points if point["capacity_bytes"] == capacity)
    for what, theirs, key in (("accesses", "40 %", "hit_ratio"), ("traffic", "55 %", "byte_hit_ratio")):
        question = f"{what} served by 50 TB of LRU"
        yield Row("DOMA, MWT2", question, theirs, percent(at[key]), "curve --capacity", FITTED)


def of_kit() -> Iterator[Row]:
    """The best cached fraction of NaviX's cluster, and its throughput."""
    cluster = Cluster(750e6, 1.2e9, 3, 10e6, 1000)
    best = best_cached_fraction(cluster)
    nothing_s, best_s = processing_s(cluster, 1e14, np.array([0.0, best]))
    times = f"{nothing_s / best_s:.1f}"
    yield Row("KIT, NaviX", "best cached fraction", "about 0.8", f"{best:.2f}", "[plan] cluster", MODEL)
    yield Row("KIT, NaviX", "throughput against no cache", "fivefold", times, "[plan] cluster", MODEL)


def of_socal(folder: Path, size: float) -> Iterator[Row]:
    """Requests that are hits before and after the cache grew, and how much less the WAN carries."""
    cachecast("workload", "--scenario", "socal", "--scale", f"{size}", "--out", folder)
    small, large = (int(n * size) for n in (40e12, 56e12))
    points = cachecast("curve", "--trace", folder, "--capacity", f"{small},{large}")["points"]
    at = {point["capacity_bytes"]: point for point in points}
    ours = f"{percent(at[small]['hit_ratio'])} → {percent(at[large]['hit_ratio'])}"
    question = "requests hit at 40 and at 56 TB"
    yield Row("SoCal", question, "62 % → 89 %", ours, "curve --capacity", GROWN)
    times = [1 / (1 - at[n]["byte_hit_ratio"]) for n in (small, large)]
    ours = f"{times[0]:.2f} to {times[1]:.2f}"
    yield Row("SoCal", "WAN traffic reduced, times", "2.35 to 3", ours, "curve --capacity", GROWN)


def of_eos() -> Row:
    """The share of files that were read once, of the published histogram itself."""
    with (DATA / "eos_2017_reads_histogram.csv").open() as file:
        files = {int(row["reads"]): int(row["readfrom"]) for row in csv.DictReader(file)}
    once = percent(files[1] / sum(files.values()))
    return Row("EOS 2017", "files read once", "56 %", once, "none: their histogram", "their own data")


def cachecast(*words: object) -> Any:
    """The answer of a command as JSON."""
    command = [sys.executable, "-m", "jobs", *map(str, words), "--json", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{100 * share:.0f} %"


if __name__ == "__main__":
    main()
