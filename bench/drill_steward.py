"""Drills of the steward beside real XCaches: what is killed, lost or full, and what the cache then holds.

bench/drill_steward.py [--only DRILL ...] [--quick] [--blind SECONDS] [--xrootd VERSION ...]

Exit code 1 if a promise breaks.

Each drill has an origin, an XCache that purges above 20 files of 1 MiB, a collector and stewards of its own,
each a process. What must hold: no byte read is wrong, no open file is removed, the cache ends below its high
watermark by the steward, or at its low one by its own purge, which comes once a minute and is looked for in
its log. `disk full` gives the cache a disk of its own in memory, which needs root. The last drill reads the
same through two caches, one with a steward (LRU), and replays these reads with the room that this one left at
each: byte hits must agree within 2 %.
`--quick` leaves out the drills that wait for a purge. Each drill is done with every XRootD version that is
here (conf/deploy/xrootd.sh builds two), or those of `--xrootd`.

Needs the environment that `make verify` makes: .venv/bin/python bench/drill_steward.py
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import xrootd_versions  # noqa: E402
from promises import Broken, check  # noqa: E402
from side_by_side import side_by_side  # noqa: E402
from steward_site import MIB, Site, name_of, running  # noqa: E402
from waiting import eventually  # noqa: E402

from features.common.errors import PushError, ServiceError  # noqa: E402

BLIND_S = 60.0
DISK_BYTES = 32 * MIB
PURGE_S = 135.0
"""XCache looks every 60 s, and spares what was used since it looked last."""


def killed_steward(site: Site) -> str:
    """kill -9 in the middle of an eviction, again and again; the next steward goes on."""
    names, n_kills = site.files("k", 60), 0
    for name in names[:18]:
        site.read(name)
    with site.reading(names[0]):
        time.sleep(1.5)
        for at in range(18, 54, 6):
            steward = site.steward()
            for name in names[at : at + 6]:
                site.read(name)
            newest = set(site.held())
            check(eventually(partial(evicts, site, newest)), "it does not evict")
            time.sleep(random.Random(at).uniform(0.0, 0.3))
            steward.kill()
            steward.wait()
            n_kills += 1
        site.steward()
        check(eventually(lambda: len(site.held()) <= 15), "above its target")
        check(name_of(names[0]) in site.held(), "the open file is gone")
    return f"{n_kills} kills; {len(site.held())} files at the end, the open one among them"


def evicts(site: Site, held: set[str]) -> bool:
    """Whether one of the files `held` is gone."""
    return not held <= site.held()


def killed_cache(site: Site) -> str:
    """kill -9 of the cache while the steward evicts; it follows the server's next life."""
    names = site.files("c", 45)
    for name in names[:17]:
        site.read(name)
    time.sleep(1.5)
    site.steward()
    pid = site.servers.cache.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    n_before, restarted_s = site.figures.rescans, time.monotonic()
    site.servers.restart_cache()
    site.read(names[17])
    check(eventually(lambda: follows(site, n_before)), f"it does not follow: {site.figures.alarms}")
    followed_s, (_, n_purged) = time.monotonic() - restarted_s, site.purged()
    for name in names[18:]:
        site.read(name)
        time.sleep(0.25)
    check(eventually(lambda: 8 < len(site.held()) <= 15, 40), f"{len(site.held())} files")
    check({name_of(name) for name in names[-5:]} <= site.held(), "the newest files are gone")
    check(site.purged()[1] == n_purged, "the cache purged by itself")
    return f"followed after {followed_s:.0f} s; {len(site.held())} files, the newest among them"


def follows(site: Site, n_rescans: int) -> bool:
    """Whether the steward has taken an inventory anew, and hears the server and nobody else."""
    figures = site.figures
    return figures.rescans > n_rescans and not {"steward-blind", "steward-impostor"} & figures.alarms.keys()


def deaf(site: Site, blind_s: float = BLIND_S) -> str:
    """The collector is gone for `blind_s`; what was not reported is found, and no open file is removed."""
    names = site.files("d", 18)
    for name in names[:2]:
        site.read(name)
    time.sleep(1.5)
    site.steward()
    site.stop(site.collector)
    with site.reading(names[2]):
        for name in names[3:]:
            site.read(name)
        check(eventually(lambda: "steward-blind" in site.figures.alarms, 25), "no alarm")
        rescans, until = site.figures.rescans, time.monotonic() + blind_s
        while time.monotonic() < until:
            check(site.figures.evicted_files == 0, "evicted while blind")
            time.sleep(1)
        _, n_purged = site.purged()
        check(len(site.held()) == 18 - n_purged, "files are gone that nobody removed")
        site.collect()
        site.read(names[17])
        check(eventually(lambda: len(site.held()) <= 15, 40), "unreported files are not found")
        check(name_of(names[2]) in site.held(), "the open file is gone")
        check(eventually(lambda: site.figures.rescans > rescans, 90), "no new inventory")
    return (
        f"alarm steward-blind, nothing evicted in {blind_s:.0f} s, {n_purged} purged by XCache; then a new "
        f"inventory, and {len(site.held())} files"
    )


def disk_full(site: Site) -> str:
    """The disk runs full while the steward is stopped: jobs read past the cache, then it makes room."""
    names = site.files("f", 44)
    site.read(names[0])
    time.sleep(1.5)
    steward = site.steward()
    steward.send_signal(signal.SIGSTOP)
    with site.reading(names[0]):
        for name in names[1:]:
            check(as_at_origin(site, name), f"{name} is read wrongly while the disk is full")
        fullest = used_share(site)
        check(fullest > 0.98, f"only {fullest:.0%} of the disk are used")
        steward.send_signal(signal.SIGCONT)
        check(eventually(lambda: used_share(site) < 0.9, 60), f"still {used_share(site):.0%} used")
        check(name_of(names[0]) in site.held(), "the open file is gone")
    wrong = [name for name in names if not as_at_origin(site, name)]
    check(not wrong, f"read wrongly afterwards: {wrong[:3]}")
    check(eventually(lambda: used_share(site) < 0.9, 60), f"{used_share(site):.0%} used after more reads")
    check(steward.poll() is None, "the steward ended")
    return f"disk {fullest:.0%} full, {len(names)} files read right; then {used_share(site):.0%}, right again"


def used_share(site: Site) -> float:
    """How full the cache's disk is."""
    status = os.statvfs(site.servers.namespace)
    return 1 - status.f_bavail / status.f_blocks


def as_at_origin(site: Site, name: str) -> bool:
    """Whether a file read through the cache has the bytes that it has at the origin."""
    read = site.folder / "read"
    words = ["xrdcp", "-f", "-s", f"{site.servers.cache_url}/{name}", str(read)]
    done = subprocess.run(words, capture_output=True, check=False, timeout=120)
    return done.returncode == 0 and read.read_bytes() == (site.servers.origin_root / name[1:]).read_bytes()


def burst(site: Site) -> str:
    """A steward that is stopped is outrun: XCache's own purge takes over, then the steward again."""
    names = site.files("b", 60)
    site.read(names[0])
    time.sleep(1.5)
    steward = site.steward()
    steward.send_signal(signal.SIGSTOP)
    for name in names[1:40]:
        site.read(name)
    check(len(site.held()) == 40, "evicted while stopped")
    check(eventually(lambda: len(site.held()) < 40, PURGE_S), "the cache did not purge")
    time.sleep(2.0)
    left = len(site.held())
    check(site.purged()[1] > 0, "the cache's log knows of no purge")
    steward.send_signal(signal.SIGCONT)
    for name in names[40:]:
        site.read(name)
        time.sleep(0.1)
    check(eventually(lambda: 8 < len(site.held()) <= 15, 40), f"{len(site.held())} files")
    return f"40 files, XCache's purge left {left}; then the steward kept {len(site.held())}"


def reopened(site: Site) -> str:
    """Files are opened as they are evicted; each read gets its bytes."""
    names = site.files("r", 30)
    for name in names[:14]:
        site.read(name)
    time.sleep(1.5)
    site.steward()
    chance, n_reads, errors = random.Random(1), 0, list[str]()

    def reader() -> None:
        nonlocal n_reads
        for _ in range(40):
            try:
                with site.reading(chance.choice(names)):
                    time.sleep(0.05)
                n_reads += 1
            except (PushError, AssertionError) as error:
                errors.append(str(error))

    threads = [threading.Thread(target=reader) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not errors, f"{len(errors)} reads failed: {errors[:1]}")
    check(eventually(lambda: len(site.held()) <= 15), "above its target")
    return f"{n_reads} reads of 30 files in a cache of 15, none failed"


def two_stewards(site: Site) -> str:
    """The second steward of a cache is refused, with the process number of the first."""
    site.read(site.files("t", 1)[0])
    first = site.steward()
    check(f"(process {first.pid})" in site.refused(), "the second one is not refused")
    site.stop(first)
    site.stop(site.steward())
    return "refused, naming the first; free again when that ended"


DRILLS: dict[str, tuple[Callable[[Site], str], bool]] = {
    "kill -9 of the steward, mid-eviction": (killed_steward, False),
    "kill -9 of the cache": (killed_cache, False),
    "monitoring lost": (deaf, False),
    "disk full": (disk_full, False),
    "outrun, and XCache's purge": (burst, True),
    "files re-opened as they are evicted": (reopened, False),
    "two stewards": (two_stewards, False),
    "two caches side by side": (side_by_side, True),
}


def done(name: str, drill: Callable[[Site], str], version: str) -> bool:
    """Drill with one version and print what was seen; False: a promise was broken."""
    began = time.monotonic()
    try:
        with (
            xrootd_versions.in_use(version),
            running(DISK_BYTES if drill is disk_full else None) as site,
        ):
            held, seen = "yes", drill(site)
    except (Broken, PushError) as error:
        held, seen = "**no**", str(error)
    except ServiceError as error:
        held, seen = "not done", str(error)
    print(f"| {name} | {version} | {held} | {seen} | {time.monotonic() - began:.0f} |", flush=True)
    return held != "**no**"


def main() -> int:
    """Drill, print the table, and say by the exit code whether all promises held."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--only", nargs="*", choices=DRILLS, help="these drills")
    options.add_argument("--quick", action="store_true", help="without those that take minutes")
    options.add_argument("--blind", type=float, default=BLIND_S, help="seconds without monitoring")
    options.add_argument("--xrootd", nargs="*", default=xrootd_versions.tested(), help="these versions")
    chosen = options.parse_args()
    drills = DRILLS | {"monitoring lost": (partial(deaf, blind_s=chosen.blind), False)}
    print("| drill | XRootD | held | what was seen | s |\n|---|---|---|---|---|")
    n_broken = 0
    for name, (drill, is_long) in drills.items():
        if (chosen.only and name not in chosen.only) or (chosen.quick and is_long):
            continue
        for version in chosen.xrootd:
            n_broken += not done(name, drill, version)
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main())
