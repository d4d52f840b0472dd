"""What Rucio names is read, counted and fetched at the paths of an ATLAS cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cachecast_main import asked, cachecast
from raw_records import catalogue, gstream, hashed

from features.common.times import parse_as_of
from jobs.ground.settings.tree import Settings
from jobs.loop.push import prefill

SCOPE, DATASET, PREFIX = (
    "mc26_14TeV",
    "mc26_14TeV.900001.X.deriv.DAOD_PHYSLITE.e1_tid00000007_00",
    "/atlas/rucio",
)
NAMES = [f"DAOD_PHYSLITE.00000007._{n:06}.pool.root.1" for n in range(4)]
SIZE = 9


def site(folder: Path, *more: str) -> list[str]:
    """The options of a command for a folder cache whose origin has the files, after pulls of both sides."""
    for name in NAMES:
        path = folder / "origin" / hashed(SCOPE, name, PREFIX)[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * SIZE)
    (folder / "cache").mkdir(exist_ok=True)
    lines = [f'[push]\njournal = "{folder}/journal.db"\n[sources]\ndemand = {{ "*" = "xcache_gstream" }}']
    lines += ['[caches.dir]\nname = "dir"\nkind = "directory"\ncapacity = "1GB"', f'url = "{folder}/cache"']
    (folder / "site.toml").write_text("\n".join([*lines, f'origin = "{folder}/origin"', *more]) + "\n")
    options = ["--conf", str(folder / "site.toml"), "--tables", str(folder / "tables")]
    reads = [hashed(SCOPE, name, PREFIX) for name in NAMES for _ in range(3)]
    listing = [json.loads(line) for line in catalogue(NAMES, SCOPE, DATASET).splitlines()]
    for row in listing:
        row |= {"rses": ["LAB_DATADISK", "FAR_DATADISK"], "locked": []}
    (folder / "g-0001.capture").write_text(gstream(reads))
    (folder / "files.jsonl").write_text("\n".join(map(json.dumps, listing)) + "\n")
    asked(
        "pull",
        "--source",
        "xcache_gstream",
        "--input",
        folder / "g-0001.capture",
        "--day",
        "2026-04-09",
        *options,
    )
    asked(
        "pull", "--source", "rucio_files", "--input", folder / "files.jsonl", "--day", "2026-04-09", *options
    )
    return options


def prefilled(options: list[str]) -> Any:
    return asked("prefill", "--cache", "dir", "--dataset", f"{SCOPE}:{DATASET}", "--jobs", "3", *options)


def test_nobody_reads_what_the_cache_read_is_not_said(tmp_path: Path) -> None:
    options, days = site(tmp_path), ["--from", "2026-04-09", "--to", "2026-04-09"]
    told = asked("storage", "--rse", "LAB_DATADISK", "--capacity", "1GB", *days, *options)
    assert [(row["files"], row["stored_bytes"], row["unread_bytes"]) for row in told["stored"]] == [
        (4, 4 * SIZE, 0)
    ]
    assert [row["dataset"] for row in told["datasets"]] == [f"{SCOPE}:{DATASET}"]
    assert not [note for note in told["notes"] if "without a replica" in note]


def test_a_dataset_of_rucio_is_fetched_to_its_paths(tmp_path: Path) -> None:
    options = site(tmp_path, f'prefix = "{PREFIX}"')
    assert prefilled(options)["pushed"]["pushed"] == 4
    held = {path.name for path in (tmp_path / "cache").rglob("*.root.1")}
    assert held == set(NAMES)
    again = asked("prefill", "--cache", "dir", "--dataset", f"{SCOPE}:{DATASET}", "--jobs", "9", *options)
    assert (again["on_disk"], again["prefetch"]) == (4, 0), "it knows what it holds by DID"
    # A file by its path, its URL or its DID is the same file.
    listed = tmp_path / "names"
    ways = [
        hashed(SCOPE, NAMES[0], PREFIX),
        f"root://x:1/{hashed(SCOPE, NAMES[0], PREFIX)}?authz=t",
        f"{SCOPE}:{NAMES[0]}",
    ]
    for n, name in enumerate(ways):
        listed.write_text(name + "\n")
        told = asked(
            "prefill", "--cache", "dir", "--files", listed, "--jobs", str(n + 1), "--dry-run", *options
        )
        assert (told["files"], told["unknown"], told["on_disk"]) == (1, 0, 1)


def test_two_prefills_of_one_second_are_two_plans(tmp_path: Path) -> None:
    options, at = site(tmp_path, f'prefix = "{PREFIX}"'), "2026-04-10T00:00:00Z"
    (tmp_path / "names").write_text(f"{SCOPE}:{NAMES[0]}\n")
    listed: list[str | Path] = ["prefill", "--cache", "dir", "--files", tmp_path / "names", *options]
    asked(*listed, "--as-of", at)
    taken = cachecast(*listed, "--as-of", at)
    assert (taken.returncode, "has a plan at" in taken.stderr) == (1, True)
    settings = Settings.load(tmp_path / "site.toml", tables=str(tmp_path / "tables"), env={})
    at_s = parse_as_of(at)
    assert prefill.free_moment(settings, "dir", at_s) == at_s + 1
    assert prefill.free_moment(settings, "dir", at_s - 1) == at_s - 1


def test_the_path_is_learned_from_what_the_cache_holds(tmp_path: Path) -> None:
    options = site(tmp_path)
    refused = cachecast("prefill", "--cache", "dir", "--dataset", f"{SCOPE}:{DATASET}", *options)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1 and "caches.dir.prefix" in refused.stderr
    assert "set caches.dir.prefix" in " ".join(cachecast("doctor", *options).stdout.split())
    assert not (tmp_path / "tables/queue").exists(), "nothing is left of it"
    (tmp_path / "site.toml").write_text((tmp_path / "site.toml").read_text() + f'prefix = "{PREFIX}"\n')
    (tmp_path / "one").write_text(f"{SCOPE}:{NAMES[0]}\n")
    asked("prefill", "--cache", "dir", "--files", tmp_path / "one", *options)
    site(tmp_path)
    assert prefilled(options)["prefetch"] == 3


@pytest.mark.parametrize("name", ["../../../etc/x", "a\u2028b", ".."])
def test_a_name_from_rucio_that_leads_out_fetches_nothing(tmp_path: Path, name: str) -> None:
    options = site(tmp_path, f'prefix = "{PREFIX}"')
    (tmp_path / "evil.jsonl").write_text(catalogue([name], SCOPE, "evil"))
    asked(
        "pull", "--source", "rucio_files", "--input", tmp_path / "evil.jsonl", "--day", "2026-04-09", *options
    )
    ended = cachecast("prefill", "--cache", "dir", "--dataset", f"{SCOPE}:evil", "--json", *options)
    told = json.loads(ended.stdout)["pushed"]
    assert (ended.returncode, told["pushed"], told["failed"]) == (1, 0, 1)
    assert "not a usable file name" in str(told["failures"])
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
