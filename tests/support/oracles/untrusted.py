"""Every parser of bytes from outside, as one call on bytes: a clear error or an answer, nothing else.

`TARGETS` are what tests/test_untrusted.py asks a little and bench/fuzz.py asks for long. A target lets
`CachecastError` pass as an answer; what else it raises is a defect. None needs Spark.
"""

import asyncio
import base64
import gzip
import itertools
import json
import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import google_crc32c
import pyarrow as pa
from captures import read_capture
from name_oracle import parse_name

from features.common.errors import CachecastError
from features.common.times import parse_as_of, parse_day
from features.common.units import format_bytes, parse_bytes, parse_duration
from features.schema import QUEUE, arrow_schema
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.loop.ingest.queue_entries import check_entries
from jobs.loop.ingest.queues.answers import read_answer
from jobs.operator.placement.serve import server
from jobs.studies.simulate import workload
from jobs.studies.simulate.fleet import load_fleet
from prefetch.databases import Database, without_password
from prefetch.journal.tables import metadata
from prefetch.lfn import checked_lfn, path_below
from prefetch.placement.front import Front
from prefetch.xcache import cinfo
from prefetch.xcache.cinfo_rows import SCHEMA, remembered
from prefetch.xcache.fstream import decode
from prefetch.xcache.fstream_capture import Access, Fault, FstreamReader
from prefetch.xcache.server import parse_version
from replay.read import read_trace

_DEMO = Path(__file__).parents[3] / "conf" / "workloads" / "demo.toml"
NOW_S = 1_772_323_200
OPERATOR = "operators-token-of-the-fuzz"
_ROUTES = (
    *(
        ("POST", "/liveness"),
        ("POST", "/prefix"),
        ("PUT", "/serve"),
        ("DELETE", "/serve"),
        ("POST", "/score"),
    ),
    *(("GET", "/ds/"), ("PUT", "/ds/reassign/"), ("DELETE", "/ds/reassign/")),
    *(("GET", "/"), ("DELETE", "/liveness/")),
)
_N_BODIES = 5

Parse = Callable[[bytes], object]
"""Gives what it found in the bytes, in short: a count, a name, a status."""


class Target(NamedTuple):
    """A parser, and inputs that it takes, to begin from."""

    parse: Parse
    seeds: tuple[bytes, ...]


def answers(parse: Parse, content: bytes) -> None:
    """Parse; an error of ours is an answer if it is bounded."""
    try:
        parse(content)
    except CachecastError as error:
        assert len(str(error)) <= 600, "an error without bounds"


class Parsers:
    """The targets, in a folder of their own."""

    def __init__(self, folder: Path, data: Path) -> None:
        self._folder, self._data = folder, data
        self._loop = asyncio.new_event_loop()
        self._front: Front | None = None

    def targets(self) -> Mapping[str, Target]:
        """All of them by name."""
        cinfos = [path.read_bytes() for path in sorted(self._data.glob("*.cinfo"))]
        captures = [path.read_bytes() for path in sorted(self._data.glob("gstream*.txt"))]
        packets = list(_packets(self._data / "osdf_fstream_packets.jsonl.gz"))
        datagrams = [base64.b64decode(json.loads(line)["data"]) for line in packets]
        jobs = json.dumps([_JOB, _JOB | {"files": ["/f"], "dataset": ""}]).encode()
        lines = b"\n".join(json.dumps(_JOB).encode() for _ in range(2))
        return {
            "cinfo": Target(_cinfo, tuple(cinfos)),
            "cinfo_sealed": Target(_cinfo_sealed, tuple(packed[4:] for packed in cinfos)),
            "gstream_capture": Target(self._gstream, tuple(captures)),
            "gstream_datagram": Target(self._datagram, tuple(itertools.chain(*map(_datagrams, captures)))),
            "fstream_datagram": Target(_fstream, tuple(datagrams)),
            "fstream_lines": Target(self._fstream_lines, (*packets, gzip.compress(packets[0], mtime=0))),
            "queue_json": Target(self._queue("json"), (jobs, lines, b'{"jobs": []}')),
            "queue_csv": Target(self._queue("csv"), (_CSV_QUEUE,)),
            "settings_toml": Target(self._settings, (_SITE,)),
            "fleet_toml": Target(self._fleet, (b'[[caches]]\nname = "a"\ncapacity = "1TB"\ncount = 2\n',)),
            "workload_toml": Target(self._workload, (_DEMO.read_bytes(),)),
            "environment": Target(_environment, (b"PLAN__HORIZON\n1d", b"SOURCES__CACHE_HOSTS\n['a']")),
            "trace_csv": Target(self._trace("csv", "table"), (b"time,item,size\n1,a,5\n2,b,6\n",)),
            "trace_oracle": Target(self._trace("bin", "oracleGeneral"), (struct.pack("<IQIq", 1, 2, 3, -1),)),
            "trace_any": Target(self._trace("dat", "auto"), (b"time;item;size\n1;a;5\n",)),
            "names": Target(_names, (b"/store/mc/E/P/AODSIM/V-v1/0/f.root", b"v5.5.3", b"1.5TB", b"4h")),
            "database_url": Target(_database, (b"postgresql://u:p@h:5432/db?sslmode=require", b"a.db")),
            "http": Target(self._http, _HTTP),
        }

    def close(self) -> None:
        """Leave nothing behind."""
        self._loop.close()
        shutil.rmtree(self._folder)

    def _file(self, suffix: str, content: bytes) -> Path:
        path = self._folder / f"input.{suffix}"
        path.write_bytes(content)
        return path

    def _gstream(self, content: bytes) -> int:
        records = read_capture(self._file("capture", content)).records
        for event in records:
            _is_text(event.lfn, event.host, event.inst, event.site, *event.remotes, event.event_id)
            pa.array([event.size_bytes, event.b_hit, event.b_miss, event.b_bypass], pa.int64())
        return len(records)

    def _datagram(self, content: bytes) -> int:
        return self._gstream(b"@@%d 1 %d\n%s" % (NOW_S, len(content[:65535]), content[:65535]))

    def _fstream_lines(self, content: bytes) -> tuple[int, int]:
        reader = FstreamReader()
        suffix = "jsonl.gz" if content.startswith(b"\x1f\x8b") else "jsonl"
        items = (*reader.read(self._file(suffix, content)), *reader.unfinished())
        faults = [item for item in items if isinstance(item, Fault)]
        accesses = [item for item in items if isinstance(item, Access)]
        for fault in faults:
            _is_text(fault.reason, fault.sample)
        for access in accesses:
            _is_text(access.server[0], access.opened.lfn)
        assert reader.n_lost >= 0
        return len(accesses), len(faults)

    def _queue(self, suffix: str) -> Parse:
        def parse(content: bytes) -> int:
            raw = read_answer(str(self._file(suffix, content)), token="", timeout_s=1)
            checked = check_entries(raw, as_of_s=NOW_S, stale_s=86400)
            pa.Table.from_pylist(list(checked.rows.values()), arrow_schema(QUEUE))
            _is_text(*checked.refused, *checked.samples.values())
            return len(checked.rows)

        return parse

    def _settings(self, content: bytes) -> list[str]:
        return [cache.name for cache in Settings.load(self._file("toml", content), env={}).caches.values()]

    def _fleet(self, content: bytes) -> list[str]:
        return list(load_fleet(self._file("toml", content)))

    def _workload(self, content: bytes) -> list[str]:
        config = workload.load(str(self._file("toml", content)), seed=1)
        return [category.name for category in config.categories]

    def _trace(self, suffix: str, kind: str) -> Parse:
        return lambda content: _reads(read_trace(self._file(suffix, content), kind=kind).trace)

    def _http(self, content: bytes) -> int:
        front = self._started()
        method, path = _ROUTES[content[0] % len(_ROUTES)] if content else ("GET", "/")
        has_body = content and content[0] % len(_ROUTES) < _N_BODIES
        if not has_body:
            path += content[1:].decode(errors="replace")
        status = self._loop.run_until_complete(_asked(front, method, path, content[1:] if has_body else b""))
        assert 200 <= status < 500, f"{method} {path!r} answers {status}"
        return status

    def _started(self) -> Front:
        if self._front is None:
            settings = Settings.load(env={"CACHECAST_SERVE__TOKEN": OPERATOR})
            serve = settings.serve.model_copy(update={"database": str(self._folder / "placement.db")})
            cache = CacheSettings(name="xc1", kind="xcache", url="root://xc1", site="EDGE", capacity=100)
            pages: Any = SimpleNamespace(caches=(), style=b"", page=lambda *_: b"", close=lambda: None)
            built = server(serve, [cache], pages, job_read_rate_bytes_s=1e6, now_s=lambda: float(NOW_S))
            self._front = cast(Front, built.config.app)
        return self._front


async def _asked(front: Front, method: str, path: str, body: bytes) -> int:
    """The status of one request as uvicorn hands it on."""
    headers = [(b"authorization", f"Bearer {OPERATOR}".encode()), (b"content-type", b"application/json")]
    scope: dict[str, Any] = {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method},
        **{"path": path, "raw_path": b"/", "query_string": b"", "root_path": "", "scheme": "http"},
        **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {}},
        "headers": [*headers, (b"content-length", b"%d" % len(body))],
    }
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await front(scope, receive, send)
    return statuses[0]


def _cinfo(content: bytes) -> int:
    info = cinfo.parse(content)
    records = [record._asdict() for record in remembered(info)]
    pa.array(records, SCHEMA.field("records").type.value_type)
    sizes = [info.size_bytes, info.bytes_on_disk, info.n_blocks, info.last_detach_s]
    pa.array(sizes, pa.int64())
    assert 0 <= info.bytes_on_disk <= info.size_bytes
    assert isinstance(info.complete, bool) and isinstance(info.is_open, bool)
    return len(records)


def _cinfo_sealed(content: bytes) -> int:
    """As a damaged cache may write it: both checksums are right, whatever they are of."""
    store, tail = content[:48].ljust(48, b"\0"), content[52:-4]
    return _cinfo(struct.pack("<i", 4) + store + _crc(store) + tail + _crc(tail))


def _crc(content: bytes) -> bytes:
    return struct.pack("<I", google_crc32c.value(content))


def _fstream(content: bytes) -> tuple[int, int]:
    packet = decode(content)
    _is_text(*(opened.lfn for opened in packet.opened))
    pa.array([number for event in (*packet.opened, *packet.closed) for number in event[:2]], pa.int64())
    return len(packet.opened), len(packet.closed)


def _environment(content: bytes) -> object:
    key, _, value = content.decode(errors="surrogateescape").partition("\n")
    with suppress(ValueError):  # bytes that no environment holds
        loaded = Settings.load(env={f"CACHECAST_{key}": value})
        return loaded.plan.horizon, loaded.sources.cache_hosts
    return None


def _names(content: bytes) -> object:
    text = content.decode(errors="surrogateescape")
    name, version = parse_name(text), parse_version(text)
    for parse in (checked_lfn, parse_as_of, parse_day, parse_duration):
        with suppress(CachecastError):
            parse(text)
    with suppress(CachecastError):
        path_below(Path("/nowhere"), text)
    with suppress(CachecastError):
        format_bytes(parse_bytes(text))
    return name.dataset, version.numbers


def _database(content: bytes) -> str:
    url = content.decode(errors="replace")
    Database(url, metadata, setting="push.journal", what="journal", patience_s=1).close()
    return without_password(url)


def _reads(trace: Any) -> int:
    assert trace.item.size == trace.size_bytes[trace.item].size
    return int(trace.n_accesses)


def _is_text(*texts: str) -> bool:
    pa.array(texts, pa.string())
    return True


def _datagrams(capture: bytes) -> Iterator[bytes]:
    for head in re.finditer(rb"@@\d+ \d+ (\d+)\n", capture):
        content = capture[head.end() : head.end() + int(head[1])]
        if len(content) == int(head[1]):  # the capture may be cut at its end
            yield content


def _packets(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") as stream:
        yield from (line for line in itertools.islice(stream, 12) if line.strip())


_JOB: dict[str, object] = {
    **{"job_id": "1", "dataset": "/P/E-v1/AOD", "n_jobs": 2, "site": "S"},
    **{"expected_start": "2026-03-01T04:00:00Z", "known_at": "2026-03-01T00:00:00Z"},
}
_CSV_QUEUE = b"job_id,dataset,file,n_jobs,expected_start\n1,,/f,2,2026-03-01T04:00:00Z\n2,/P/E/AOD,,,\n"
_SITE = (
    b'[plan]\nhorizon = "1d"\n[caches.a]\nname = "a"\nkind = "directory"\nurl = "/c"\norigin = "/o"\n'
    b'capacity = "10TB"\nwatermarks = [0.8, 0.9]\n[users]\nsalt = "s"\n'
)
_HTTP = (
    b'\x00{"id": "xc1", "site": "EDGE", "address": "xc1:1094", "size": 100}',
    b'\x01{"client": "EDGE", "filename": "cms:/f"}',
    b'\x02{"client": "A", "cache_site": "EDGE"}',
    b'\x04{"inputs": ["cms:/f", {"did": "cms:/g", "size_bytes": 5}], "waited_s": 1}',
    *(b"\x050/cms:/P/E/AOD", b"\x06cms:/P/E/AOD/EDGE,other", b"\x08metrics", b"\x09EDGE/xc1"),
)


def parsers(data: Path, folder: Path | None = None) -> Parsers:
    """The targets; their files lie in `folder`, else in memory where that is a folder."""
    memory = Path("/dev/shm")
    place = folder or tempfile.mkdtemp(prefix="cachecast-fuzz-", dir=memory if memory.is_dir() else None)
    return Parsers(Path(place), data)
