#!/usr/bin/env python3
"""Prefill a cache with what a job will read, before the batch system has it; the job never waits.

HTCondor and HTCondor-CE, <KEYWORD>_HOOK_TRANSLATE_JOB: standard input is the route, a line of dashes, the ad
of the job; standard output that ad, unchanged. ARC, `statecallout` of A-REX: `prefill.py CONTROLDIR JOBID`.

CACHECAST_CACHE names the cache. Descriptions wait in the folder CACHECAST_SPOOL, named by their inputs and
owner: a thousand equal jobs are one. A process in the background hands them to `cachecast prefill`, one by
one and owner by owner, with the settings CACHECAST_CONF. Needs Python's standard library alone, beside the
command.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
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
PATIENCE_S = 3
NEW, DONE = ".new", ".done"
READ = ("cachecastinputs", "transferinput", "args", "arguments", "crab_reqname", "crab_inputdata")
READ += ("desired_cmsdataset", "wmagent_requestname")


def of_arc(control: str, job: str, what: str) -> str:
    """What A-REX (ARC 7, or before) keeps of a job, `description` or `local`; empty if it has none."""
    if not re.fullmatch("[A-Za-z0-9]{1,128}", job):
        return ""
    parts = re.findall(".{1,3}", job)
    for path in (Path(control, f"job.{job}.{what}"), Path(control, "jobs", *parts, what)):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(MOST_BYTES + 1).decode(errors="replace")
    return ""


def of_ad(ad: dict[str, str]) -> str:
    """What of an ad says what the job reads, as the ad of a job that waits; empty if nothing does."""
    inputs = {name: value for name, value in ad.items() if name.lower() in READ}
    return write_ad({"ClusterId": "0", "JobStatus": "1"} | inputs) if inputs else ""


def name_of(text: str, who: str) -> str:
    """A name for a description of equal inputs and owner: of its paths, DIDs and URLs, but for its outputs'.

    The rest differs: A-REX writes the id of a credential into each; whoever submits, a name.
    """
    stated = re.findall("(?im)^cachecastinputs = .*", text)
    # At what ends a name where descriptions are read, and at nothing that a name may hold.
    words = re.split(r"[\s\"'<>,]+", "".join(text.split("OutputFile>")[::2]))
    inputs = "\n".join(sorted({*stated, *(word for word in words if "/" in word or ":" in word)}))
    return f"{hashlib.sha256(inputs.encode(errors='replace')).hexdigest()}-{who}"


def waiting() -> list[tuple[float, str, Path]]:
    """What waits: since when, whose it is by its name, and where."""
    rows = []
    for path in SPOOL.glob("*" + NEW):
        with suppress(FileNotFoundError):  # it has been handed over meanwhile
            rows.append((path.stat().st_mtime, path.stem.partition("-")[2], path))
    return rows


def keep(text: str, owner: str) -> str:
    """Keep a description until it is handed over; why not, if it is not kept."""
    content = text.encode(errors="replace")
    if len(content) > MOST_BYTES:
        return f"its description is larger than {MOST_BYTES >> 20} MiB"
    SPOOL.mkdir(mode=0o700, parents=True, exist_ok=True)
    if SPOOL.stat().st_mode & 0o002:
        return f"anybody may write into {SPOOL}: chmod o-w it"
    who = hashlib.sha256(owner.encode(errors="replace")).hexdigest()[:8] if owner else ""
    name = name_of(text, who)
    done = SPOOL / (name + DONE)
    if (SPOOL / (name + NEW)).exists() or (done.exists() and is_recent(done)):
        return ""
    others = waiting()
    if len(others) >= MOST_WAITING:
        n_waiting = Counter(owner for _, owner, _ in others)
        most, n_most = n_waiting.most_common(1)[0]
        if n_waiting[who] + 1 >= n_most:
            return f"{MOST_WAITING} jobs wait in {SPOOL} already"
        # Who has the most makes room: nobody can fill the folder against others.
        max(row for row in others if row[1] == most)[2].unlink(missing_ok=True)
    part = SPOOL / f"{name}.{os.getpid()}"
    part.write_bytes(content)
    part.rename(SPOOL / (name + NEW))
    return ""


def is_recent(done: Path) -> bool:
    """Whether a description was handed over within a day; also by a clock that was ahead."""
    return abs(time.time() - done.stat().st_mtime) < AGAIN_S


def hand_over() -> None:
    """Give what waits to the command, of each owner in turn the oldest; two do not do so at once."""
    served: dict[str, float] = {}
    while waiting():
        with (SPOOL / "lock").open("w") as lock, (SPOOL / "log").open("a") as log:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            clean()
            for _, rows in zip(range(MOST_WAITING), iter(waiting, []), strict=False):
                _, owner, path = min(rows, key=lambda row: (served.get(row[1], 0.0), row[0]))
                served[owner] = time.monotonic()
                with suppress(FileNotFoundError):  # it has made room for another
                    prefill(path, log)


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


def prefill(path: Path, log: TextIO) -> None:
    """Run `cachecast prefill` for a description; what it says, or why it did not run, is in the log."""
    # Done before it is tried: a description that ends the command is tried once.
    done = path.rename(path.with_suffix(DONE))
    done.touch()
    line = [COMMAND, "prefill", "--cache", os.environ["CACHECAST_CACHE"], "--described", str(done)]
    line += ["--conf", conf] if (conf := os.environ.get("CACHECAST_CONF")) else []
    try:
        subprocess.run(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.write(f"{COMMAND}: {error}\n")
    # Its name is all that counts now: a description may hold a secret, and many fill a disk.
    os.truncate(done, 0)
    if os.fstat(log.fileno()).st_size > MOST_LOG_BYTES:
        log.truncate(0)


def take(text: str, owner: str, whys: list[str]) -> None:
    """Keep a description, and start the process that hands it over; `whys` gets why not, or nothing."""
    try:
        if not (why := keep(text, owner)):
            nothing = subprocess.DEVNULL
            line = [sys.executable, __file__, "--hand-over"]
            subprocess.Popen(line, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError as error:
        why = f"{SPOOL}: {error.strerror}"
    whys.append(why)


def main() -> None:
    """Keep the job's description for the process that hands it over; give up soon if its folder is hung."""
    os.umask(0o077)
    arguments = sys.argv[1:]
    if arguments == ["--hand-over"]:
        hand_over()
        return
    if arguments:
        ad, text = {"ClusterId": arguments[-1]}, of_arc(arguments[0], arguments[-1], "description")
        # The first, unless it is in an argument, whose ends of lines older A-REX only escape.
        subject = re.search(r"(?m)(?<!\\\n)^subject=(.+)$", of_arc(arguments[0], arguments[-1], "local"))
        owner = subject[1] if subject else ""
    else:
        _, _, job = given().rpartition(f"\n{SEPARATOR}\n")
        give(job)
        ad = read_ads(job)[-1]
        text, owner = of_ad(ad), next((ad[name] for name in ad if name.lower() == "owner"), "")
    whys = [] if text else ["it names no input"]
    if "CACHECAST_CACHE" not in os.environ:
        whys = ["set CACHECAST_CACHE"]
    if not whys:
        taking = threading.Thread(target=take, args=(text, owner, whys), daemon=True)
        taking.start()
        taking.join(PATIENCE_S)
    if why := (whys or [f"{SPOOL} does not answer within {PATIENCE_S} s"])[0]:
        left_alone(ad, why)
    sys.stderr.flush()
    os._exit(0)  # whatever hangs


if __name__ == "__main__":
    main()
