"""Raw records of reads and of a catalogue, as servers, caches and Rucio write them."""

import datetime as dt
import hashlib
from collections.abc import Sequence

from matrix_records import json_lines
from monitoring import Sender, close

AT_S = 1775692800
"""When the reads begin: 2026-04-09."""

DAY = dt.date(2026, 4, 9)
"""Of `AT_S`."""


def hashed(scope: str, name: str, prefix: str) -> str:
    """The place of a file by Rucio's `hash` naming, as Rucio's own code makes it."""
    digits = hashlib.md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
    folder = scope.replace(".", "/") if scope.startswith(("user", "group")) else scope
    return f"{prefix}/{folder}/{digits[:2]}/{digits[2:4]}/{name}"


def aaa(names: Sequence[str]) -> str:
    start_ms = AT_S * 1000
    data = [
        {"unique_id": f"r{n}", "file_lfn": name, "file_size": 9, "start_time": start_ms, "end_time": start_ms}
        for n, name in enumerate(names)
    ]
    return json_lines({"data": datagram} for datagram in data)


def osdf_log(names: Sequence[str]) -> str:
    return "".join(
        f"[2026-04-09T00:00:00Z] [Objectname:{name}] [Read:9] [n:{n}]\n" for n, name in enumerate(names)
    )


def osdf_accesses(names: Sequence[str]) -> str:
    head = "time,win_beg,win_end,lfn,size,user_id,file_id,read,readv,close_time\n"
    return head + "".join(f"{AT_S},{AT_S},{AT_S},{name},9,1,{n},9,0,{AT_S}\n" for n, name in enumerate(names))


def tracer(names: Sequence[str]) -> str:
    records = [
        {"tid": f"u.1:{n}@wn", "event": "openr", "path": name, "ts_access": AT_S, "storage": "T1"}
        for n, name in enumerate(names)
    ]
    return json_lines(records)


def gstream(names: Sequence[str], **changed: object) -> str:
    """A capture of a close of each file; `changed`: other fields of the records."""
    records = [
        close(name, 9, AT_S + n, attach_t=AT_S + n, remotes=[]) | changed for n, name in enumerate(names)
    ]
    text = Sender("xc", 1094, "xc", "LAB", AT_S, 1).gstream(*records).decode()
    return f"@@{AT_S + 60} 9931 {len(text.encode())}\n{text}\n"


def traces(names: Sequence[str], scope: str = "cms") -> str:
    read = {"eventType": "get_sm", "scope": scope, "transferStart": AT_S, "timeEnd": AT_S}
    return json_lines({**read, "filename": name, "uuid": f"u{n}"} for n, name in enumerate(names))


def trace(**fields: object) -> str:
    """A line of Rucio's: a read of 2026-03-01."""
    start = 1772323200
    read = {"eventType": "get", "scope": "s", "filename": "f", "uuid": "u", "transferStart": start}
    return json_lines([{**read, "transferEnd": start + 1, **fields}])


def catalogue(names: Sequence[str], scope: str = "cms", dataset: str = "D") -> str:
    rows = [
        {"parent_name": dataset, "scope": scope, "name": name, "bytes": 9, "created_at": "2026-04-01"}
        for name in names
    ]
    return json_lines(rows)
