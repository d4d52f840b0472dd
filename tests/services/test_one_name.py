"""The loop beside a real XCache whose paths are not Rucio's names: what it read is what the catalogue lists,
and what is planned by DID is fetched, pinned and evicted at its paths."""

import datetime as dt
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cachecast_main import asked, cachecast
from daemons import needed
from federation import Federation, serving
from federation import running as nodes_running
from raw_records import hashed
from waiting import eventually

from features.common.times import as_of_label, day_label
from features.schema import ACCESSES, CONTENTS, OUTCOMES, PLANS, PREDICTIONS, RECEIPTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.local_site.local.xrootd import Loopback
from replay.ranges import layout_of

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
SIZE, CYCLE_S = 300_000, 10
SITE = """\
[features]
cycle = "10s"
horizons = ["1h"]
candidates = "1h"
active_datasets = "1h"
history = "1h"
[plan]
horizon = "1h"
control_share = 0.0
cycle = "1d"
prefetch_share = 1.0
rules = [{{ action = "pin", names = ["*kept*"] }}, {{ action = "never", names = ["*stale*"] }}]
[push]
journal = "{folder}/journal.db"
[sources]
demand = {{ "*" = "xcache_gstream" }}
[caches.cache]
name = "cache"
kind = "xcache"
url = "{url}"
{seen_by}
capacity = "1GB"
evict_guard = "0s"
"""


def files_of(experiment: str) -> dict[str, tuple[str, str]]:
    """Three files by what is to happen: their DIDs and their paths in the cache."""
    if experiment == "cms":
        names = {what: f"/store/mc/Run3/A/AOD/v1-v1/0/{what}.root" for what in ("kept", "stale", "coming")}
        return {what: (f"cms:{name}", name) for what, name in names.items()}
    scope = "user.ada" if experiment == "a user of atlas" else "mc23_13p6TeV"
    names = {
        what: f"DAOD_PHYS.41000001._{n:06}.{what}.root.1"
        for n, what in enumerate(("kept", "stale", "coming"))
    }
    return {what: (f"{scope}:{name}", hashed(scope, name, "/atlas/rucio")) for what, name in names.items()}


def read(site: Loopback, capture: Path, path: str) -> None:
    """Read a file as a job does, and wait for the report: two reads before it would count as one."""
    n_before = n_told(capture, path)
    subprocess.run(["xrdcp", "-s", "-f", f"{site.cache_url}/{path}", "/dev/null"], check=True, timeout=180)
    assert eventually(lambda: n_told(capture, path) > n_before)


def on_disk(site: Loopback) -> set[str]:
    return {
        f"/{path.relative_to(site.namespace)}"
        for path in site.namespace.rglob("*.root*")
        if path.suffix != ".cinfo"
    }


@pytest.mark.parametrize("experiment", ["a user of atlas", "cms, cache elsewhere"])
def test_a_cache_and_rucio_mean_the_same_files(
    running: tuple[Loopback, Path], tmp_path: Path, xrootd: str, experiment: str
) -> None:
    """Of a cache elsewhere the controller sees no disk: its host scans, and its server confirms."""
    experiment, _, is_elsewhere = experiment.partition(", ")
    site, capture = running
    files = files_of(experiment)
    for _, path in files.values():
        site.add_file(path, b"x" * SIZE)
    conf, tables = tmp_path / "site.toml", Tables(str(tmp_path / "tables"))
    write_settings(site, capture, conf, controller_sees_disk=not is_elsewhere, version=xrootd)
    options = ["--conf", str(conf), "--tables", tables.root]
    for what in ("kept", "stale", "kept"):
        read(site, capture, files[what][1])
    assert capture.read_text(errors="replace").count('"file_close"') == 3
    listing = tmp_path / "files.jsonl"
    listing.write_text("".join(map(listed, (did for did, _ in files.values()))))
    today = day_label(int(time.time()))
    asked("pull", "--source", "xcache_gstream", "--input", capture, "--day", today, *options)
    asked("pull", "--source", "rucio_files", "--input", listing, "--day", today, *options)
    of_reads = tables.read_arrow(ACCESSES).to_pylist()
    assert sorted(row["did"] for row in of_reads) == sorted(
        [files["kept"][0], files["kept"][0], files["stale"][0]]
    )

    if is_elsewhere:
        asked("scan", "--cache", "cache", "--conf", tmp_path / "host.toml", "--tables", tables.root)
    time.sleep(CYCLE_S - time.time() % CYCLE_S)
    as_of_s = int(time.time()) // CYCLE_S * CYCLE_S
    as_of = ["--as-of", as_of_label(as_of_s)]
    asked("features", *as_of, *options)
    computed = tables.read_arrow(Settings.load(conf, env={}).features.spec.features_table).to_pylist()
    assert {row["dataset"] for row in computed} == {"s:the.dataset"}
    assert {row["did"] for row in computed} >= {files["kept"][0], files["stale"][0]}

    predicted = [prediction(did) for did, _ in files.values()]
    tables.replace_rows(PREDICTIONS, predicted, (day_label(as_of_s), as_of_label(as_of_s), "default"))
    planned = asked("plan", "--cache", "cache", *as_of, *options)
    assert (planned["pin"], planned["evict"], planned["prefetch"]) == (1, 1, 1), planned
    items = {row["action"]: row for row in tables.read_arrow(PLANS).to_pylist()}
    for action, what in {"pin": "kept", "evict": "stale", "prefetch": "coming"}.items():
        assert (items[action]["did"], items[action]["name"]) == files[what]

    pushed = asked("push", "run", "--cache", "cache", *as_of, "--unproven", "--force", *options)
    assert (pushed["pushed"] + pushed["already_done"], pushed["failed"]) == (3, 0), pushed
    receipts = tables.read_arrow(RECEIPTS).to_pylist()
    assert {row["state"] for row in receipts} == {"done"}
    assert eventually(lambda: on_disk(site) == {files["kept"][1], files["coming"][1]})

    assert eventually(lambda: n_told(capture, files["coming"][1])), "our own use of it has ended"
    time.sleep(2)  # the cache reports whole seconds
    read(site, capture, files["coming"][1])
    asked("pull", "--source", "xcache_gstream", "--input", capture, "--day", today, *options)
    asked("outcomes", "--cache", "cache", *as_of, *options)
    of_push = {row["action"]: row for row in tables.read_arrow(OUTCOMES).to_pylist()}
    assert (of_push["prefetch"]["did"], of_push["prefetch"]["n_hits"]) == (files["coming"][0], 1)
    assert of_push["prefetch"]["bytes_wasted"] == 0
    doctor = cachecast("doctor", *options)
    assert "knows 2 of 2 files" in doctor.stdout, doctor
    if is_elsewhere:
        an_inventory_of_another_cache_is_refused(tables, options)


def write_settings(
    site: Loopback, capture: Path, conf: Path, *, controller_sees_disk: bool, version: str
) -> None:
    """The settings `conf` of the controller, and beside it `host.toml` of the cache's host.

    From 5.8 on `stat` tells whether a file is whole; an older server needs its g-stream.
    """
    at_host = f'namespace = "{site.namespace}"'
    elsewhere = "" if version >= "5.8" else f'gstream = "{capture}"'
    for path, seen_by in (
        (conf, at_host if controller_sees_disk else elsewhere),
        (conf.with_name("host.toml"), at_host),
    ):
        path.write_text(SITE.format(folder=conf.parent, url=site.cache_url, seen_by=seen_by))


def an_inventory_of_another_cache_is_refused(tables: Tables, options: list[str]) -> None:
    now_s = int(time.time())
    others = [contents_row(f"/store/other/{n}.root", now_s) for n in range(3)]
    tables.replace_rows(CONTENTS, others, (day_label(now_s), as_of_label(now_s), "cache"))
    refused = cachecast("prefill", "--cache", "cache", "--dataset", "s:the.dataset", *options)
    assert refused.returncode == 1
    assert "does not hold 3 of 3 files of its inventory of" in refused.stderr, refused


def contents_row(name: str, at_s: int) -> dict[str, Any]:
    at = dt.datetime.fromtimestamp(at_s, dt.UTC)
    sizes = {"size_bytes": SIZE, "bytes_on_disk": SIZE, "complete": True, "open": False}
    return {"did": f"cms:{name}", "name": name, "scanned_at": at, "last_detach": at, **sizes}


def test_what_others_write_leads_to_no_other_file(running: tuple[Loopback, Path], tmp_path: Path) -> None:
    """Copies that anybody may make, and names that a catalogue may list, beside the files of the plan."""
    site, capture = running
    files = files_of("atlas")
    copies = [path.replace("/atlas/rucio", other) for other in OTHERS for _, path in files.values()]
    for path in copies:
        site.add_file(path, b"x" * 2 * SIZE)
    for _, path in files.values():
        site.add_file(path, b"x" * SIZE)
    conf, tables = tmp_path / "site.toml", Tables(str(tmp_path / "tables"))
    seen_by = f'namespace = "{site.namespace}"'
    text = SITE.format(folder=tmp_path, url=site.cache_url, seen_by=seen_by)
    conf.write_text(f'{text}prefix = "/atlas/rucio"\n')
    options = ["--conf", str(conf), "--tables", tables.root]
    held = [files["kept"][1], files["stale"][1], *copies]
    for path in held:
        read(site, capture, path)
    assert on_disk(site) == set(held)
    assert capture.read_text(errors="replace").count('"file_close"') == len(held)
    evil = [f"user.eve:{files['kept'][1]}", f"user.eve:{files['coming'][1]}", "mc23_13p6TeV:../../../../x"]
    listing = tmp_path / "files.jsonl"
    listing.write_text("".join(map(listed, [*evil, *(did for did, _ in files.values())])))
    today = day_label(int(time.time()))
    asked("pull", "--source", "rucio_files", "--input", listing, "--day", today, *options)
    asked("pull", "--source", "xcache_gstream", "--input", capture, "--day", today, *options)
    reads = {(row["did"], row["dataset"]) for row in tables.read_arrow(ACCESSES).to_pylist()}
    assert reads == {(did, "s:the.dataset") for did, _ in files.values()}

    time.sleep(CYCLE_S - time.time() % CYCLE_S)  # what is open, or read after as_of, has no item
    as_of_s = int(time.time()) // CYCLE_S * CYCLE_S
    key = (day_label(as_of_s), as_of_label(as_of_s), "default")
    dids = [*(did for did, _ in files.values()), *evil]
    tables.replace_rows(PREDICTIONS, list(map(prediction, dids)), key)
    as_of = ["--as-of", as_of_label(as_of_s)]
    asked("plan", "--cache", "cache", *as_of, *options)
    items = tables.read_arrow(PLANS).to_pylist()
    by_name = {row["name"]: (row["did"], row["action"]) for row in items}
    assert len(by_name) == len(items), "one path is of one item"
    for what, action in {"kept": "pin", "stale": "evict", "coming": "prefetch"}.items():
        assert files[what][1] in by_name, (by_name, held)
        assert by_name[files[what][1]][1] == action
    assert by_name[files["kept"][1]][0] == files["kept"][0]
    asked("push", "run", "--cache", "cache", *as_of, "--unproven", "--force", *options)
    done = {row["did"] for row in tables.read_arrow(RECEIPTS).to_pylist() if row["state"] == "done"}
    assert files["kept"][0] in done and evil[2] not in done
    gone = {files["stale"][1], *(path for path in copies if by_name.get(path, ("", ""))[1] == "evict")}
    assert eventually(lambda: on_disk(site) == {*held, files["coming"][1]} - gone)


OTHERS = ("/atlas/rucio2", "/atlas/user/e/eve", "/atlas/rucio/mc23_13p6TeV")


@pytest.fixture
def federation(xrootd: str) -> Iterator[Federation]:
    yield from needed("XRootD with cmsd", nodes_running(("n1", "n2")))


def test_behind_a_redirector_each_file_of_atlas_has_one_node(federation: Federation, tmp_path: Path) -> None:
    """A node asks the redirector by paths, and the hash that shares files is of Rucio's names."""
    scope, names = "mc23_13p6TeV", [f"DAOD_PHYS.42000001._{n:06}.root" for n in range(12)]
    for name in names:
        federation.put(hashed(scope, name, "/atlas/rucio"), b"x" * SIZE)
    conf, listing = tmp_path / "site.toml", tmp_path / "files.jsonl"
    conf.write_text(federation.settings(("n1", "n2"), tmp_path, 'prefix = "/atlas/rucio"\n'))
    options = ["--conf", str(conf), "--tables", str(tmp_path / "tables")]
    listing.write_text("".join(listed(f"{scope}:{name}") for name in names))
    asked("pull", "--source", "rucio_files", "--input", listing, "--day", "2026-03-01", *options)
    assert eventually(lambda: serving(federation.seen_by("n1", "n2")) == {"n1", "n2"})
    for node in ("n1", "n2"):
        summary = asked("prefill", "--cache", node, "--dataset", "s:the.dataset", "--jobs", "4", *options)
        assert summary["pushed"]["failed"] == 0, summary
    held = [{path.name for path in node.namespace.rglob("*.root")} for node in federation.nodes.values()]
    assert all(held) and not held[0] & held[1] and held[0] | held[1] == set(names)
    by_hash = layout_of({"n1": 1, "n2": 1}).owners_of([f"{scope}:{name}" for name in names])
    assert [name in held[0] for name in names] == [owner == "n1" for owner in by_hash]


def n_told(capture: Path, path: str) -> int:
    return capture.read_text(errors="replace").count(f'"lfn":"{path}"')


def listed(did: str) -> str:
    scope, _, name = did.partition(":")
    row = {"parent_scope": "s", "parent_name": "the.dataset", "scope": scope, "name": name, "bytes": SIZE}
    return json.dumps(row | {"created_at": "2026-01-01", "rses": ["DISK"]}) + "\n"


def prediction(did: str) -> dict[str, Any]:
    return {
        **{"did": did, "horizon_s": 3600, "probability": 0.9, "expected_accesses": 2.0, "size_bytes": SIZE},
        **{"dataset": "s:the.dataset", "model_version": "m/1"},
    }
