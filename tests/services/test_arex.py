"""A real A-REX with the hook that `docs/prefill.md` installs: what it fetches, and that no job waits."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import arex
import pytest
from arex import Arex
from cachecast_main import asked
from daemons import needed
from folder_site import folder_site
from hung_mount import hung_mount
from matrix_records import json_lines
from waiting import eventually

from features.common.times import day_label
from features.schema import QUEUE
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.queues import arc
from jobs.loop.ingest.queues.answers import read_answer
from jobs.loop.ingest.queues.place import Place

pytestmark = pytest.mark.service
ROOT = Path(__file__).parents[2]
HOOK = ROOT / "conf/deploy/htcondor/prefill.py"
NAMES = [f"/store/mc/Run3/A/AOD/v1/0/f{n}.root" for n in range(4)]
SIZE = 1000


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Arex]:
    """An A-REX beside a cache that is a folder, with the line of the documentation, paths apart."""
    (tmp_path / "cache").mkdir()
    folder_site(tmp_path, '[sources]\ndemand = { "*" = "xcache_gstream" }\n')
    command = tmp_path / "cachecast"
    program = "import sys; from jobs.cli.main import main; main()"
    command.write_text(f"#!/bin/sh\ncd {ROOT}\nexec {sys.executable} -c '{program}' \"$@\"\n")
    command.chmod(0o755)
    env = f"CACHECAST_CACHE=dir CACHECAST_CONF={tmp_path}/site.toml CACHECAST_SPOOL={tmp_path}/spool"
    (line,) = [at for at in (ROOT / "docs/prefill.md").read_text().splitlines() if "statecallout=" in at]
    for documented, here in (
        ("CACHECAST_CACHE=xc1", f"{env} CACHECAST_COMMAND={command}"),
        ("/usr/libexec/cachecast/prefill.py", str(HOOK)),
    ):
        assert documented in line
        line = line.replace(documented, here)
    yield from needed("a real A-REX", arex.running(line))


def job(name: str, *inputs: str, arguments: str = "x") -> str:
    staged = "".join(f'("in{n}" "{source}")' for n, source in enumerate(inputs))
    staged = f"(inputFiles={staged})" if inputs else ""
    return f'&(executable="/bin/true")(jobname="{name}")(arguments="{arguments}"){staged}'


def test_an_arex_prefills_by_the_hook_and_none_of_its_jobs_waits(site: Arex, tmp_path: Path) -> None:
    options = ["--conf", str(tmp_path / "site.toml")]
    row = {"parent_scope": "cms", "parent_name": "/A/Run3-v1/AOD", "scope": "cms", "bytes": SIZE}
    row |= {"created_at": "2026-01-01", "rses": ["FAR_DISK"]}
    for lfn in NAMES:
        (tmp_path / f"origin{lfn}").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"origin{lfn}").write_bytes(b"x" * SIZE)
    (tmp_path / "files.jsonl").write_text(json_lines(row | {"name": lfn} for lfn in NAMES))
    day = day_label(int(time.time()))
    asked("pull", "--source", "rucio_files", "--input", tmp_path / "files.jsonl", "--day", day, *options)

    # Nothing listens there: the jobs wait for what they stage in, for the rest of this test.
    origin = "root://127.0.0.1:1/"
    jobs = [site.submit(job(of, f"{origin}{NAMES[0]}", arguments=NAMES[1])) for of in ("first", "again")]
    tables, spool, cache = Tables(str(tmp_path / "tables")), tmp_path / "spool", tmp_path / "cache"
    assert eventually(lambda: {file.name for file in cache.rglob("*.root")} == {"f0.root", "f1.root"})
    entries = tables.read_arrow(QUEUE).to_pylist()
    assert {(one["input"], one["is_dataset"], one["cache"]) for one in entries} == {
        (f"{origin}{NAMES[0]}", False, "dir"),
        (NAMES[1], False, "dir"),
    }
    assert len(list(spool.glob("*.done"))) == 1, "equal inputs are asked for once, whatever A-REX adds"
    assert eventually(lambda: all(map(site.has_begun, jobs)))

    # Its control folder is a queue; who submitted is in it.
    said = asked("queue", "--name", "arc", "--input", site.control, *options)
    assert (said["jobs"], said["inputs"], said["rejected"]) == (2, 4, {})
    raw = read_answer(str(site.control), token="", timeout_s=0)
    assert {entry["owner"] for entry in arc.entries(raw, Place(int(time.time())))} == {"/DC=test/CN=ada"}

    # What is hostile is left alone or taken, and the job goes on.
    strange = [f"{origin}/store/a b'$(touch {tmp_path}/x)`;{n}.root" for n in range(2)]
    many = [f"{origin}/store/many/f{n}.root" for n in range(300)]
    huge = job("huge", f"{origin}{NAMES[3]}") + f'(environment=("A" "{"x" * 2**20}"))'
    jobs += [site.submit(description) for description in (huge, job("strange", *strange))]
    began = time.monotonic()
    jobs.append(site.submit(job("many", *many)))
    usual_s = time.monotonic() - began
    assert eventually(lambda: all(map(site.has_begun, jobs)))
    refused = "error: the files table knows none of the"
    assert eventually(lambda: (spool / "log").read_text().count(refused) == 2)
    assert len(list(spool.glob("*.done"))) == 3, "too long a description is not kept"
    assert not (tmp_path / "x").exists()

    # A file system that hangs holds no submission up, and fails none.
    spool.rename(tmp_path / "was")
    spool.symlink_to(tmp_path / "hung")
    (tmp_path / "hung").mkdir()
    with hung_mount(tmp_path / "hung"):
        began = time.monotonic()
        site.submit(job("waits", f"{origin}{NAMES[2]}"))
        assert time.monotonic() - began < usual_s + 9, "less than A-REX would give the hook"
