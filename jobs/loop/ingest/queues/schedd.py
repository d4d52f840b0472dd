"""The queue of schedds, asked by HTCondor's Python bindings.

They wait as long as a schedd does, and a fault of theirs ends the process: they run in one of their own.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from features.common.errors import InputError, ServiceError, bounded
from jobs.loop.ingest.queues.classads import EXTRA
from jobs.loop.ingest.queues.htcondor import ATTRIBUTES

SCHEME = "condor://"
MOST_JOBS = 300_000  # of a schedd: the bindings hold them all in memory
MOST_BYTES = 256 * 2**20
_LIBRARY = "htcondor2"
_ADDRESS = re.compile(r"condor://([A-Za-z0-9._-]+(?::[0-9]{1,5})?)?(?:/([A-Za-z0-9._@-]*))?")
_CONSTRAINT = "JobStatus == 1 || JobStatus == 2"
_MOST_CAUSE_CHARS = 200


def asked(address: str, timeout_s: int) -> str:
    """Ads of waiting jobs at `condor://POOL/SCHEDD`, an object a line; either part may be left out.

    Without SCHEDD all of the pool, or with neither this machine's. Raises InputError, ServiceError.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise InputError("not an address of a schedd; write for example condor://pool.example.org/schedd")
    if find_spec(_LIBRARY) is None:
        raise InputError(f"{address} needs HTCondor's Python bindings; {EXTRA}")
    # -P: what lies in the working folder is nobody's module.
    command = [sys.executable, "-P", "-m", __name__, parts[1] or "", parts[2] or ""]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise ServiceError(
            f"{address} does not answer within {timeout_s} s; is it up, and is [queue] timeout long enough?"
        ) from None
    if answer.returncode:
        said = " ".join(answer.stderr.decode(errors="replace").splitlines()[-1:])
        cause = bounded(said, _MOST_CAUSE_CHARS) or f"the bindings ended with {answer.returncode}"
        raise ServiceError(
            f"{address} does not answer: {cause}; is it up, and may this account read its queue?"
        )
    return answer.stdout.decode(errors="replace")


def _jobs(bindings: Any, pool: str, name: str) -> Iterator[Any]:
    """The ads of waiting jobs. Raises LookupError, OverflowError, and what the bindings raise."""
    if not pool and not name:
        places = [None]
    else:
        collector, kind = bindings.Collector(pool or None), bindings.DaemonType.Schedd
        places = [collector.locate(kind, name)] if name else collector.locateAll(kind)
        if not places or None in places:
            raise LookupError(f"the pool knows no schedd {name}".rstrip())
    for place in places:
        schedd = bindings.Schedd() if place is None else bindings.Schedd(place)
        ads = schedd.query(constraint=_CONSTRAINT, projection=list(ATTRIBUTES), limit=MOST_JOBS + 1)
        if len(ads) > MOST_JOBS:
            raise OverflowError(f"more than {MOST_JOBS} jobs wait; read the output of condor_q in parts")
        yield from ads


def main() -> None:
    """Write the queue of the schedd that the command line names, or why there is none."""
    try:
        n_left = MOST_BYTES
        for ad in _jobs(import_module(_LIBRARY), *sys.argv[1:3]):
            n_left -= sys.stdout.write(" ".join(ad.printJson().splitlines()) + "\n")
            if n_left < 0:
                raise OverflowError(f"its queue is larger than {MOST_BYTES >> 20} MiB")
    except Exception as error:  # noqa: BLE001  whatever the bindings raise, in a line
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")


if __name__ == "__main__":
    main()
