#!/usr/bin/env python3
"""Prefill a cache with what a job will read, before the batch system has it; the job never waits.

HTCondor and HTCondor-CE, <KEYWORD>_HOOK_TRANSLATE_JOB: standard input is the route, a line of dashes, the ad
of the job; standard output that ad, unchanged. ARC, `statecallout` of A-REX: `prefill.py CONTROLDIR JOBID`.

CACHECAST_CACHE names the cache. Descriptions wait in the folder CACHECAST_SPOOL, named by their inputs: a
thousand equal jobs are one. A process in the background hands them to `cachecast prefill`, one by one, with
the settings CACHECAST_CONF. Needs Python's standard library alone, beside the command.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from cachecast_hook import SEPARATOR, give, given, left_alone, read_ads, write_ad

SPOOL = Path(os.environ.get("CACHECAST_SPOOL", "/var/spool/cachecast/prefill"))
COMMAND = os.environ.get("CACHECAST_COMMAND", "cachecast")
AGAIN_S = 86400
KEEPING_S = 3600
MOST_WAITING = 1000
MOST_BYTES = 2**20
MOST_LOG_BYTES = 2**24
TIMEOUT_S = 3600
NEW, DONE = ".new", ".done"
READ = ("cachecastinputs", "transferinput", "args", "arguments", "crab_reqname", "crab_inputdata")
READ += ("desired_cmsdataset", "wmagent_requestname")


def described(control: str, job: str) -> str:
    """The description of a job of ARC, where A-REX keeps it (ARC 7, or before); empty if it has none."""
    if not re.fullmatch("[A-Za-z0-9]{1,128}", job):
        return ""
    parts = re.findall(".{1,3}", job)
    for path in (Path(control, f"job.{job}.description"), Path(control, "jobs", *parts, "description")):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(MOST_BYTES + 1).decode(errors="replace")
    return ""


def of_ad(ad: dict[str, str]) -> str:
    """What of an ad says what the job reads, as the ad of a job that waits; empty if nothing does."""
    inputs = {name: value for name, value in ad.items() if name.lower() in READ}
    return write_ad({"ClusterId": "0", "JobStatus": "1"} | inputs) if inputs else ""


def keep(text: str) -> str:
    """Keep a description until it is handed over; why not, if it is not kept."""
    content = text.encode(errors="replace")
    if len(content) > MOST_BYTES:
        return f"its description is larger than {MOST_BYTES >> 20} MiB"
    SPOOL.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(content).hexdigest()
    done = SPOOL / (name + DONE)
    if (SPOOL / (name + NEW)).exists() or (done.exists() and is_recent(done)):
        return ""
    if sum(1 for _ in SPOOL.glob("*" + NEW)) >= MOST_WAITING:
        return f"{MOST_WAITING} jobs wait in {SPOOL} already"
    part = SPOOL / f"{name}.{os.getpid()}"
    part.write_bytes(content)
    part.rename(SPOOL / (name + NEW))
    return ""


def is_recent(done: Path) -> bool:
    """Whether a description was handed over within a day; also by a clock that was ahead."""
    return abs(time.time() - done.stat().st_mtime) < AGAIN_S


def hand_over() -> None:
    """Give what waits to the command, the oldest first; another process that does so is left to it."""
    while any(SPOOL.glob("*" + NEW)):
        with (SPOOL / "lock").open("w") as lock, (SPOOL / "log").open("a") as log:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            clean()
            for waiting in sorted(SPOOL.glob("*" + NEW), key=lambda path: path.stat().st_mtime):
                # Done before it is tried: a description that ends the command is tried once.
                done = waiting.rename(waiting.with_suffix(DONE))
                done.touch()
                prefill(done, log)
                # Its name is all that counts now: a description may hold a secret, and many fill a disk.
                os.truncate(done, 0)
                if os.fstat(log.fileno()).st_size > MOST_LOG_BYTES:
                    log.truncate(0)


def clean() -> None:
    """Remove what is old, and what hooks that were killed have left. Nobody else hands over meanwhile."""
    for old in SPOOL.glob("*" + DONE):
        if is_recent(old):
            os.truncate(old, 0)
        else:
            old.unlink()
    for part in SPOOL.glob("*.[0-9]*"):
        with suppress(FileNotFoundError):  # its hook has kept it meanwhile
            if abs(time.time() - part.stat().st_mtime) > KEEPING_S:
                part.unlink()


def prefill(file: Path, log: TextIO) -> None:
    """Run `cachecast prefill` for a description; what it says, or why it did not run, is in the log."""
    line = [COMMAND, "prefill", "--cache", os.environ["CACHECAST_CACHE"], "--described", str(file)]
    line += ["--conf", conf] if (conf := os.environ.get("CACHECAST_CONF")) else []
    try:
        subprocess.run(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.write(f"{COMMAND}: {error}\n")


def main() -> None:
    """Keep the job's description, and start the process that hands it over."""
    os.umask(0o077)
    arguments = sys.argv[1:]
    if arguments == ["--hand-over"]:
        hand_over()
        return
    if arguments:
        ad, text = {"ClusterId": arguments[-1]}, described(arguments[0], arguments[-1])
    else:
        _, _, job = given().rpartition(f"\n{SEPARATOR}\n")
        give(job)
        ad = read_ads(job)[-1]
        text = of_ad(ad)
    why = "" if text else "it names no input"
    if "CACHECAST_CACHE" not in os.environ:
        why = "set CACHECAST_CACHE"
    try:
        why = why or keep(text)
        if not why:
            nothing = subprocess.DEVNULL
            line = [sys.executable, __file__, "--hand-over"]
            subprocess.Popen(line, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError as error:
        why = f"{SPOOL}: {error.strerror}"
    if why:
        left_alone(ad, why)


if __name__ == "__main__":
    main()
