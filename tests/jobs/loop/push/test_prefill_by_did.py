"""What Rucio names is read, counted and fetched at the paths of an ATLAS cache."""

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cachecast_main import asked, cachecast
from folder_site import folder_site, write_files
from matrix_records import json_lines
from pulls import pulled_text
from raw_records import catalogue, gstream, hashed
from waiting import eventually

from features.common.times import as_of_label, parse_as_of
from features.schema import PLANS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.plan.cache_state import CacheAtMoment
from jobs.loop.push import prefill
from prefetch.target import Held

SCOPE, PREFIX = "mc26_14TeV", "/atlas/rucio"
DATASET = "mc26_14TeV.900001.X.deriv.DAOD_PHYSLITE.e1_tid00000007_00"
NAMES = [f"DAOD_PHYSLITE.00000007._{n:06}.pool.root.1" for n in range(4)]
SIZE = 9
HOOK = Path(__file__).parents[4] / "conf/deploy/htcondor/prefill.py"


Site = Callable[..., list[str]]


@pytest.fixture(scope="module")
def both_sides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables after pulls of what the cache read, and of what Rucio has of it."""
    folder = tmp_path_factory.mktemp("pulled")
    tables, of_each = Tables(str(folder / "tables")), {"rses": ["LAB_DATADISK", "FAR_DATADISK"], "locked": []}
    listing = (json.loads(line) | of_each for line in catalogue(NAMES, SCOPE, DATASET).splitlines())
    reads = gstream([hashed(SCOPE, name, PREFIX) for name in NAMES for _ in range(3)])
    pulled_text(tables, folder, "xcache_gstream", reads)
    pulled_text(tables, folder, "rucio_files", json_lines(listing))
    return folder / "tables"


@pytest.fixture
def site(both_sides: Path, tmp_path: Path) -> Site:
    """The options of a command for a folder cache whose origin has the files; keys of the cache are given."""
    write_files(tmp_path / "origin", (hashed(SCOPE, name, PREFIX) for name in NAMES), b"x" * SIZE)
    (tmp_path / "cache").mkdir()
    shutil.copytree(both_sides, tmp_path / "tables")

    def options(more: str = "") -> list[str]:
        conf = folder_site(tmp_path, f'{more}\n[sources]\ndemand = {{ "*" = "xcache_gstream" }}\n')
        return ["--conf", str(conf), "--tables", str(tmp_path / "tables")]

    return options


def prefilled(options: list[str]) -> Any:
    return asked("prefill", "--cache", "dir", "--dataset", f"{SCOPE}:{DATASET}", "--jobs", "3", *options)


def test_nobody_reads_what_the_cache_read_is_not_said(site: Site, tmp_path: Path) -> None:
    options, days = site(), ["--from", "2026-04-09", "--to", "2026-04-09"]
    answer = asked("storage", "--rse", "LAB_DATADISK", "--capacity", "1GB", *days, *options)
    (row,) = answer["stored"]
    assert (row["files"], row["stored_bytes"], row["unread_bytes"]) == (4, 4 * SIZE, 0)
    assert [row["dataset"] for row in answer["datasets"]] == [f"{SCOPE}:{DATASET}"]
    assert not [note for note in answer["notes"] if "without a replica" in note]


def test_a_dataset_of_rucio_is_fetched_to_its_paths(site: Site, tmp_path: Path) -> None:
    options = site(f'prefix = "{PREFIX}"')
    assert prefilled(options)["pushed"]["pushed"] == 4
    held = {path.name for path in (tmp_path / "cache").rglob("*.root.1")}
    assert held == set(NAMES)
    again = asked("prefill", "--cache", "dir", "--dataset", f"{SCOPE}:{DATASET}", "--jobs", "9", *options)
    assert (again["on_disk"], again["prefetch"]) == (4, 0), "it knows what it holds by DID"
    # A file by its path, its URL or its DID is the same file.
    listed = tmp_path / "names"
    path, dry = hashed(SCOPE, NAMES[0], PREFIX), ("prefill", "--cache", "dir", "--dry-run", *options)
    for n, name in enumerate((path, f"root://x:1/{path}?authz=t", f"{SCOPE}:{NAMES[0]}")):
        listed.write_text(name + "\n", encoding="utf-8-sig")
        answer = asked(*dry, "--files", listed, "--jobs", str(n + 1))
        assert (answer["files"], answer["unknown"], answer["on_disk"]) == (1, 0, 1)


def test_what_a_job_at_a_ce_names_is_in_the_cache_soon(site: Site, tmp_path: Path) -> None:
    """By the hook, as A-REX runs it when a job is accepted, and the command; the job goes on at once."""
    site(f'prefix = "{PREFIX}"')
    url = f"rucio://rucio.example.org;rucioaccount=pilot;cache=invariant/replicas/{SCOPE}/{NAMES[2]}"
    (tmp_path / "job.abc1.description").write_text(f'&(executable=x)(inputFiles=("in.root" "{url}"))')
    command = tmp_path / "cachecast"
    program = "import sys; from jobs.cli.main import main; main()"
    command.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{program}' \"$@\"\n")
    command.chmod(0o755)
    env = {"CACHECAST_CACHE": "dir", "CACHECAST_CONF": str(tmp_path / "site.toml")}
    env |= {"CACHECAST_COMMAND": str(command), "CACHECAST_SPOOL": str(tmp_path / "spool")}
    env |= {"CACHECAST_TABLES__ROOT": str(tmp_path / "tables")}
    line = [sys.executable, str(HOOK), str(tmp_path), "abc1"]
    assert (
        subprocess.run(line, env=os.environ | env, capture_output=True, check=True, timeout=30).stderr == b""
    )
    cached = lambda: {path.name for path in (tmp_path / "cache").rglob("*.root.1")}  # noqa: E731
    assert eventually(lambda: cached() == {NAMES[2]}, 60), (tmp_path / "spool/log").read_text()


def test_two_prefills_of_one_second_are_two_plans(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, at = site(f'prefix = "{PREFIX}"'), "2026-04-10T00:00:00Z"
    (tmp_path / "names").write_text(f"{SCOPE}:{NAMES[0]}\n")
    listed: list[str | Path] = ["prefill", "--cache", "dir", "--files", tmp_path / "names", *options]
    asked(*listed, "--as-of", at)
    taken = cachecast(*listed, "--as-of", at)
    assert (taken.returncode, "has a plan at" in taken.stderr) == (1, True)
    settings = Settings.load(tmp_path / "site.toml", tables=str(tmp_path / "tables"), env={})
    at_s, both = parse_as_of(at), threading.Barrier(2)
    written, met = Tables.replace_partition, list[int]()

    def together(*args: Any, **more: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            met.append(both.wait(5))  # each has seen that the second is free
        return written(*args, **more)

    monkeypatch.setattr(Tables, "replace_partition", together)

    def run(name: str) -> str:
        request = prefill.PrefillRequest([], [f"{SCOPE}:{name}"])
        answer = prefill.run_now(settings, request, cache="dir", from_s=at_s, on_progress=lambda *_: None)
        return answer.as_of

    with ThreadPoolExecutor(2) as pool:
        times = set(pool.map(run, NAMES[1:3]))
    assert len(met) >= 2
    assert times == {as_of_label(at_s + 1), as_of_label(at_s + 2)}
    plans = Tables.of(settings).read_arrow(PLANS).to_pylist()
    assert sorted(row["name"].rpartition("/")[2] for row in plans) == NAMES[:3]


@pytest.mark.parametrize(("steward", "n_files"), [(False, len(NAMES)), (True, 0)])
def test_open_files_leave_a_prefill_less_room_beside_a_steward_only(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steward: bool, n_files: int
) -> None:
    site(f'prefix = "{PREFIX}"')
    settings = Settings.load(tmp_path / "site.toml", tables=str(tmp_path / "tables"), env={})
    at_s, nine_tenths = parse_as_of("2026-04-10T00:00:00Z"), 900_000_000
    moment = CacheAtMoment.asked(settings, "dir", at_s)
    inventory = [Held(hashed(SCOPE, "other", PREFIX), nine_tenths, nine_tenths, True, None, True)]
    cache = moment.cache.model_copy(update={"steward": steward})
    moment = dataclasses.replace(moment, cache=cache, inventory=inventory)
    monkeypatch.setattr(CacheAtMoment, "asked", lambda *_: moment)
    request = prefill.PrefillRequest([f"{SCOPE}:{DATASET}"], [])
    more: dict[str, Any] = {"cache": "dir", "as_of_s": at_s, "on_progress": lambda *_: None}
    assert prefill.run(settings, request, dry_run=True, **more).prefetch == n_files


def test_the_path_is_learned_from_what_the_cache_holds(site: Site, tmp_path: Path) -> None:
    options = site()
    refused = cachecast("prefill", "--cache", "dir", "--dataset", f"{SCOPE}:{DATASET}", *options)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1 and "caches.dir.prefix" in refused.stderr
    assert "set caches.dir.prefix" in " ".join(cachecast("doctor", *options).stdout.split())
    assert not (tmp_path / "tables/queue").exists(), "nothing is left of it"
    settings = (tmp_path / "site.toml").read_text()
    (tmp_path / "site.toml").write_text(settings.replace("[sources]", f'prefix = "{PREFIX}"\n[sources]'))
    (tmp_path / "one").write_text(f"{SCOPE}:{NAMES[0]}\n")
    asked("prefill", "--cache", "dir", "--files", tmp_path / "one", *options)
    site()
    assert prefilled(options)["prefetch"] == 3


@pytest.mark.parametrize("name", ["../../../etc/x", "a\u2028b", ".."])
def test_a_name_from_rucio_that_leads_out_fetches_nothing(site: Site, tmp_path: Path, name: str) -> None:
    options = site(f'prefix = "{PREFIX}"')
    tables = Tables(str(tmp_path / "tables"))
    pulled_text(tables, tmp_path, "rucio_files", catalogue([name], SCOPE, "evil"))
    ended = cachecast("prefill", "--cache", "dir", "--dataset", f"{SCOPE}:evil", "--json", *options)
    pushed = json.loads(ended.stdout)["pushed"]
    assert (ended.returncode, pushed["pushed"], pushed["failed"]) == (1, 0, 1)
    assert "not a usable file name" in str(pushed["failures"])
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
