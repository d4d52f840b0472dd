"""Caches behind a real redirector: a node that is killed, one that is added, and jobs that read meanwhile."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from daemons import needed
from federation import Federation, running, serving
from typer.testing import CliRunner
from waiting import eventually

from features.common.errors import PushRejected, TargetUnavailable
from features.schema import FILES
from jobs.cli.main import app
from jobs.ground.store.tables import Tables
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.redirector import Redirector

pytestmark = [pytest.mark.service, pytest.mark.xrootd]
SIZE = 300_000
NODES = ("n1", "n2", "n3")
ALONE = "/store/mc/c/f0.root"
FIRST, SECOND = ([f"/store/mc/{of}/f{i}.root" for i in range(8)] for of in ("b", "d"))


@pytest.fixture(scope="module")
def site() -> Iterator[Federation]:
    for started in needed("XRootD with cmsd", running(NODES)):
        for name in (*FIRST, *SECOND, ALONE):
            started.put(name, b"x" * SIZE)
        yield started


def redirector_of(site: Federation, names: Sequence[str]) -> Redirector:
    """The redirector, once it serves the nodes called `names` and no other."""
    redirector = site.seen_by(*site.nodes)
    assert eventually(lambda: serving(redirector) == set(names))
    return redirector


def logged_in(site: Federation, name: str) -> None:
    """A running node logs in again if the redirector has forgotten its port, as 5.5.3 does now and then."""
    if not eventually(lambda: name in serving(site.seen_by(name)), 20):
        n_before = n_dropped(site)
        site.nodes[name].stop()
        assert eventually(lambda: n_dropped(site) == n_before + 1)
        site.nodes[name].start()


def held(site: Federation, of: str) -> dict[str, list[str]]:
    """The files of folder `of` that each node holds."""
    return {
        name: [f"/store/mc/{of}/{file.name}" for file in (node.namespace / f"store/mc/{of}").glob("*.root")]
        for name, node in site.nodes.items()
    }


def read(site: Federation, name: str) -> subprocess.CompletedProcess[str]:
    """Read a file as a job does."""
    words = ["xrdcp", "-s", "-f", f"{site.redirector.url}/{name}", "/dev/null"]
    return subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)


class Jobs:
    """Jobs that read files one after the other through the redirector, until the block ends."""

    def __init__(self, site: Federation, names: list[str]) -> None:
        self._site, self._names = site, names
        self.failed, self.n_read, self._ends = list[str](), 0, threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Jobs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ends.is_set():
            name = self._names[self.n_read % len(self._names)]
            done = read(self._site, name)
            self.failed += [done.stderr] if done.returncode else []
            self.n_read += 1


def configured(site: Federation, tmp_path: Path, names: Sequence[str]) -> list[str]:
    """The options of a command for the site, whose files table knows FIRST and SECOND."""
    tables = Tables(str(tmp_path / "tables"))
    known = {"scope": "cms", "size_bytes": SIZE, "known_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}
    rows = [
        known | {"did": f"cms:{name}", "name": name, "dataset": f"cms:/{name.split('/')[3]}/v/AOD"}
        for name in (*FIRST, *SECOND)
    ]
    if not tables.exists(FILES):
        tables.replace_rows(FILES, rows, ())
    conf = tmp_path / "site.toml"
    conf.write_text(site.settings(names, tmp_path))
    return ["--conf", str(conf), "--tables", tables.root, "--json"]


def prefilled(options: list[str], cache: str, dataset: str) -> dict[str, Any]:
    words = ["prefill", "--cache", cache, "--dataset", f"cms:/{dataset}/v/AOD", "--jobs", "4", *options]
    answer = CliRunner().invoke(app, words, catch_exceptions=False)
    summary: dict[str, Any] = json.loads(answer.stdout)
    CliRunner().invoke(app, ["scan", "--cache", cache, *options], catch_exceptions=False)
    return summary


def test_a_push_brings_one_copy_and_readers_are_sent_there(site: Federation) -> None:
    redirector = redirector_of(site, NODES)
    nodes = {
        name: XCacheTarget(name, node.url, node.namespace, redirector=redirector)
        for name, node in site.nodes.items()
    }
    assert redirector.holders(ALONE) == set()  # which the redirector remembers
    assert nodes["n2"].prefetch(ALONE, timeout_s=30) == SIZE
    assert [read(site, ALONE).returncode for _ in range(6)] == [0] * 6
    assert held(site, "c") == {"n1": [], "n2": [ALONE], "n3": []}
    with pytest.raises(PushRejected, match="n2 holds it, and the redirector sends its readers there"):
        nodes["n1"].prefetch(ALONE, timeout_s=30)
    assert nodes["n2"].prefetch(ALONE, timeout_s=30) == SIZE


def test_nodes_that_are_not_configured_are_left_alone(site: Federation) -> None:
    with pytest.raises(TargetUnavailable, match=r"names no configured node \(it names .*:\d+"):
        Redirector(site.redirector.url, {"n9": ["127.0.0.1:1"]}).serving()


def n_dropped(site: Federation) -> int:
    """How many nodes the redirector has dropped."""
    return site.redirector.cmsd.log.read_text().count(" dropped.")


def test_a_node_that_dies_or_joins_moves_its_share_alone(site: Federation, tmp_path: Path) -> None:
    redirector_of(site, NODES)
    n_before = n_dropped(site)
    options = configured(site, tmp_path, NODES)
    summaries = [prefilled(options, name, "b") for name in NODES]
    first = held(site, "b")
    assert all(first.values())
    assert sorted(itertools.chain(*first.values())) == FIRST
    assert sum(summary["pushed"]["pushed"] for summary in summaries) == len(FIRST)
    with Jobs(site, FIRST) as jobs:
        site.nodes["n3"].stop()
        redirector_of(site, ("n1", "n2"))
        for name in ("n1", "n2"):
            prefilled(options, name, "b")
        after = held(site, "b")
        assert sorted(after["n1"] + after["n2"]) == FIRST
        assert all(set(first[name]) <= set(after[name]) for name in ("n1", "n2"))
        joined = site.add("n4")
        try:
            joined.start()
            redirector_of(site, ("n1", "n2", "n4"))
            options = configured(site, tmp_path, ("n1", "n2", "n4"))
            assert prefilled(options, "n4", "b")["prefetch"] == 0  # readers are sent to those that hold it
            summaries = [prefilled(options, name, "d") for name in ("n1", "n2", "n4")]
            assert all(summary["prefetch"] for summary in summaries)
            assert sorted(itertools.chain(*held(site, "d").values())) == SECOND
        finally:
            joined.stop()
            site.nodes.pop("n4")
            # Of a node that logs in while another of its host is being dropped, 5.5.3 forgets the port.
            assert eventually(lambda: n_dropped(site) == n_before + 2)
            site.nodes["n3"].start()
    assert jobs.failed == []
    assert jobs.n_read > 0
    assert [read(site, name).returncode for name in FIRST] == [0] * len(FIRST)
    # It has what it had, and so have those that stood in for it: nobody fetches anything.
    logged_in(site, "n3")
    redirector_of(site, NODES)
    options = configured(site, tmp_path, NODES)
    assert [prefilled(options, name, "b")["prefetch"] for name in NODES] == [0, 0, 0]
