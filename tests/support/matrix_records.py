"""A small good record of every source, and the damages that servers, brokers and other tools do to it."""

import base64
import codecs
import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cinfo_writer import put
from monitoring import closing, fstream, opening

from prefetch.xcache.cinfo import AccessRecord, CInfo

Record = dict[str, Any]
START = 1772323200
LATER = 2495750400
"""2049-01-31: a clock that is wrong, or a time in the future."""
TOKEN = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0"
LFN = "/store/mc/RunIII/TT/AODSIM/P-v1/0/{}.root"
SIX = "2001:db8:c00:0:c:ffff:120c:1b1"
BLOCK = 131072


def json_lines(records: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in records)


def monit(records: Sequence[Record]) -> str:
    return json_lines([{"data": row, "metadata": {"timestamp": (START + 90) * 1000}} for row in records])


def separated(by: str) -> Callable[[Sequence[Record]], str]:
    def text(records: Sequence[Record]) -> str:
        out = io.StringIO()
        writer = csv.DictWriter(out, list(records[0]), delimiter=by, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return out.getvalue()

    return text


def osdf_lines(records: Sequence[Record]) -> str:
    return "".join(
        f"[{row['time']}] " + " ".join(f"[{name}:{row[name]}]" for name in row if name != "time") + "\n"
        for row in records
    )


def report(records: Sequence[Record]) -> str:
    """WMArchive's reports, of one step."""
    return json_lines(
        [
            {
                "wmaid": record["wmaid"],
                "task": record["task"],
                "meta_data": {"wn_name": record["wn_name"], "jobstate": "success", "ts": START + 90},
                "LFNArray": [record["lfn"]],
                "steps": [
                    {
                        "input": [{"lfn": 0}],
                        "name": "cmsRun1",
                        "site": record["site"],
                        "start": record["start"],
                        "stop": record["stop"],
                        "performance": {
                            "cpu": {"TotalJobCPU": record["cpu"], "NumberOfThreads": record["threads"]},
                            "storage": {"readTotalMB": record["megabytes"]} if "megabytes" in record else {},
                        },
                    }
                ],
            }
            for record in records
        ]
    )


def captures(records: Sequence[Record]) -> str:
    """A datagram of the g-stream for each record."""
    frames = []
    for record in records:
        fields = {name: value for name, value in record.items() if name not in ("inst", "host", "pseq")}
        source = {"site": "", "host": record["host"], "port": 1094, "inst": record["inst"]}
        header = {"code": "g", "pseq": record["pseq"], "stod": START - 9, "sid": 1, "src": source}
        body = "\n".join(map(json.dumps, (header | {"gs": {"type": "C"}}, {"event": "file_close"} | fields)))
        frames.append(f"@@{START + 90} 9931 {len(body)}\n{body}\n")
    return "".join(frames)


def datagrams(records: Sequence[Record]) -> str:
    """A datagram of the f-stream for each record, with the open and the close."""
    lines = []
    for row in records:
        opened = opening(row["id"], row["lfn"], size=row["size"], flags=row["flags"])
        closed = closing(row["id"], row["read"], 0, row["written"])
        begin = row["begin"]
        sent = fstream(opened, closed, pseq=row["id"], begin=begin, end=begin + 10, stod=START - 9, sid=7)
        lines.append({"remote": row["remote"], "data": base64.b64encode(sent).decode()})
    return json_lines(lines)


def write_cinfo(records: Sequence[Record], folder: Path) -> None:
    """A cinfo of one file, with an access for each record."""
    accesses = [
        AccessRecord(record["start"], record["start"] + 9, 1, 9, 0, record["hit"], record["missed"], 0, 0)
        for record in records
    ]
    size = max(record["size"] for record in records)
    info = CInfo(BLOCK, size, START, 0, len(accesses), 0, b"\x0f", tuple(accesses))
    put(folder, records[0]["name"], info)


WEEKS: dict[float, Any] = {0: 0, START: 2930, LATER: 7305}


@dataclass(frozen=True)
class Form:
    """How a source's records look. `record`: a good one, in which `{}` stands for what tells it from others.

    `text` writes records. `name` to `place` are the fields of the file's (dataset's, task's) name, of its
    size (the bytes read of a job), of the time, of who served it and of the site; empty: records have none.
    `write` changes a record to one of a write; `another` is the field by which another read differs.
    `unit` makes the field of a time of seconds. `address`: the field `host` with an address.
    """

    record: Record
    text: Callable[[Sequence[Record]], str]
    name: str
    another: str
    time: str
    size: str = ""
    host: str = ""
    place: str = ""
    address: str = "{}"
    write: Mapping[str, Any] = field(default_factory=dict)
    path: str | None = None
    """The field of a file's path where that is not its name; empty if there is none."""
    end: str = ""
    unit: Callable[[float], Any] = lambda seconds: int(seconds) if seconds == int(seconds) else seconds
    is_json: bool = True
    is_binary: bool = False
    is_capture: bool = False
    is_folder: bool = False
    """A file for all that is known of a file, which has one size, and its reads in order."""


def of_ms(seconds: float) -> Any:
    return int(seconds * 1000)


def moment(seconds: float) -> str:
    whole = {0: "1970-01-01T00:00:00", START: "2026-03-01T00:00:00", LATER: "2049-01-31T00:00:00"}
    return f"{whole[int(seconds)]}{'.25' * (seconds % 1 > 0)}Z"


PROXY = "root://{0}:1094//root://eos.example.org:1094/"
OPENS = {"time": START, "win_beg": START, "win_end": START + 10, "lfn": LFN, "size": 1000, "user_id": 7,
         "file_id": "12{}", "read": 400, "readv": 100, "close_time": START + 9, "write": 0}  # fmt: skip
AAA = {"file_lfn": LFN, "file_size": 1000, "unique_id": "{}", "start_time": START * 1000,
       "end_time": (START + 9) * 1000, "read_bytes": 500, "read_bytes_at_close": 500, "server_host": "eos",
       "server_domain": "cern.ch", "client_domain": "pic.es", "site_name": "T1_ES_PIC", "write_bytes": 0,
       "operation": "read"}  # fmt: skip
AAA_ROLES: dict[str, Any] = {
    **{"name": "file_lfn", "another": "unique_id", "size": "file_size"},
    **{"time": "start_time", "end": "end_time", "unit": of_ms},
    **{"host": "file_lfn", "address": PROXY + LFN},
    "write": {"operation": "write", "read_bytes": 0, "read_bytes_at_close": 0, "write_bytes": 500},
}
FORMS: dict[str, Form] = {
    "rucio_traces": Form(
        {"eventType": "get_sm", "scope": "cms", "filename": LFN, "uuid": "{}", "localSite": "T1_ES_PIC",
         "remoteSite": "T1_DE_KIT", "filesize": 1000, "clientState": "DONE", "transferStart": START,
         "transferEnd": START + 9, "traceTimeentryUnix": START + 9, "url": "/x"},
        json_lines, "filename", "uuid", "transferStart", "filesize", "url", "localSite",
        PROXY + "/x", {"eventType": "put_sm"}, end="transferEnd",
    ),
    "cms_aaa": Form(AAA, monit, place="client_domain", **AAA_ROLES),
    "cmssw_pop": Form(AAA, monit, place="site_name", **AAA_ROLES),
    "cms_tracer": Form(
        {"tid": "u.1:5@{}", "event": "openr", "path": LFN, "is_write": False, "ts_access": START,
         "storage": "T1_ES_PIC"},
        json_lines, "path", "tid", "ts_access", "", "path", "storage", PROXY + LFN, {"is_write": True},
    ),
    "pelican": Form(
        {"timestamp": START * 1000, "object_name": "/ospool/{}.h5", "site": "PIC", "server": "xc.example.org",
         "server_type": "cache", "remote_ip": "198.51.100.7", "bytes_sent": 1000, "bytes_rcvd": 0,
         "op_time": 77},
        json_lines, "object_name", "op_time", "timestamp", "", "server", "site",
        write={"bytes_sent": 0, "bytes_rcvd": 1000}, unit=of_ms,
    ),
    "osdf_log": Form(
        {"time": moment(START), "Objectname": "/ncar/rda/{}.nc", "Site": "PIC",
         "Server": "xc.example.org:8443", "ServerType": "Cache", "Read": 1000, "Write": 0},
        osdf_lines, "Objectname", "Read", "time", "", "Server", "Site", "{}:8443",
        {"Read": 0, "Write": 1000}, unit=moment, is_json=False,
    ),
    "osdf_accesses": Form(
        OPENS, separated(","), "lfn", "file_id", "time", "size", "lfn", "", PROXY + LFN,
        {"read": 0, "readv": 0, "write": 500}, end="close_time", is_json=False,
    ),
    "xcache_gstream": Form(
        {"lfn": LFN, "size": 1000, "blk_size": 1000, "n_blks": 1, "n_blks_done": 1, "access_cnt": 1,
         "attach_t": START, "detach_t": START + 9, "remotes": [], "b_hit": 0, "b_miss": 1000, "b_bypass": 0,
         "inst": "", "host": "xc.example.org", "pseq": 0},
        captures, "lfn", "detach_t", "attach_t", "size", "host", end="detach_t",
        is_json=False, is_capture=True,
    ),
    "xcache_cinfo": Form(
        {"name": LFN[1:], "size": 4 * BLOCK, "start": START, "hit": 0, "missed": 1000},
        lambda records: "", "name", "start", "start", "size", "name", "", "root:/{}:1094/" + LFN,
        is_json=False, is_binary=True, is_folder=True,
    ),
    "xrootd_fstream": Form(
        {"lfn": LFN, "id": 0, "size": 1000, "flags": 1, "read": 500, "written": 0, "begin": START,
         "remote": "192.0.2.7:40000"},
        datagrams, "lfn", "id", "begin", "size", "remote", "", "{}:40000",
        {"size": 0, "flags": 3, "read": 0, "written": 500}, unit=lambda s: min(int(s), 2**31 - 11),
        is_binary=True,
    ),
    "rucio_files": Form(
        {"parent_name": "/TT/RunIII-P-v1/AODSIM#1", "scope": "cms", "name": LFN, "bytes": 1000,
         "created_at": START, "rses": ["T1_ES_PIC"]},
        json_lines, "name", "", "created_at", "bytes",
    ),
    "rucio_dumps": Form(
        {"SCOPE": "cms", "NAME": LFN, "RSE_ID": "00" * 16, "BYTES": 1000, "STATE": "A",
         "CREATED_AT": START * 1000},
        lambda records: "", "NAME", "", "CREATED_AT", "BYTES", unit=of_ms, is_json=False, is_binary=True,
    ),
    "atlas_popularity": Form(
        {"timestamp": moment(START), "user": "jdoe", "scope": "mc23", "name": "mc23.{}.DAOD",
         "eventtype": "get_sm", "rse": "PIC", "ops": 3, "file_ops": 5},
        separated("\t"), "name", "ops", "timestamp", place="rse", write={"eventtype": "put_sm"},
        unit=moment, is_json=False,
    ),
    "popularity_series": Form(
        {"dataset": "/TT/RunIII-{}/AODSIM", "week": 2930, "accesses": 5},
        separated(","), "dataset", "accesses", "week",
        unit=lambda s: WEEKS.get(s, 2930.25), is_json=False,
    ),
    "htcondor_history": Form(
        {"GlobalJobId": "s#1.0#{}", "JobStatus": 4, "WMAgent_RequestName": "request-{}", "JobUniverse": 5,
         "ClusterId": 9,
         "MATCH_EXP_JOB_GLIDEIN_CMSSite": "T1_ES_PIC", "LastRemoteHost": "slot1@wn-{}", "JobStartDate": START,
         "CompletionDate": START + 900, "RemoteWallClockTime": 900, "CumulativeRemoteUserCpu": 600,
         "CumulativeRemoteSysCpu": 60, "RequestCpus": 1, "ExitCode": 0, "ChirpCMSSWReadBytes": 1000},
        json_lines, "WMAgent_RequestName", "GlobalJobId", "JobStartDate", "ChirpCMSSWReadBytes",
        "LastRemoteHost", "MATCH_EXP_JOB_GLIDEIN_CMSSite", "slot1@{}", path="", end="CompletionDate",
    ),
    "wmarchive": Form(
        {"wmaid": "{}", "task": "/task-{}/RECO", "wn_name": "wn-{}", "site": "T1_ES_PIC", "start": START,
         "stop": START + 900, "cpu": 660, "threads": 1, "megabytes": 1, "lfn": LFN},
        report, "task", "wmaid", "start", "megabytes", "wn_name", "site", path="lfn", end="stop",
    ),
    "panda_jobs": Form(
        {"pandaid": "7{}", "jeditaskid": "task-{}", "computingsite": "PIC", "wn": "wn-{}",
         "jobstatus": "finished",
         "starttime": START, "endtime": START + 900, "cpuconsumptiontime": 660, "actualcorecount": 1,
         "inputfilebytes": 1000},
        json_lines, "jeditaskid", "pandaid", "starttime", "inputfilebytes", "wn", "computingsite", path="",
        end="endtime",
    ),
}  # fmt: skip

Damage = Callable[[Form, Record], Sequence[Record] | None]
"""The records that are left of a good one; None where a source has nothing that could be damaged so."""


def path_of(form: Form) -> str:
    return form.name if form.path is None else form.path


def moved(change: Callable[[str], str]) -> Damage:
    """Another path of the same file."""

    def damage(form: Form, record: Record) -> list[Record] | None:
        name = path_of(form)
        value = change(record[name]) if name else ""
        return [record | {name: value}] if name and value != record[name] else None

    return damage


def changed(role: str, change: Callable[[Form, Any], Any]) -> Damage:
    def damage(form: Form, record: Record) -> list[Record] | None:
        name = getattr(form, role)
        return [record | {name: change(form, record[name])}] if name else None

    return damage


def at(seconds: float, role: str = "time") -> Damage:
    def damage(form: Form, record: Record) -> list[Record] | None:
        name = getattr(form, role)
        if not name or (form.is_binary and seconds % 1):
            return None
        return [record | {name: form.unit(seconds)}]

    return damage


def without_size(form: Form, record: Record) -> list[Record] | None:
    if not form.size or form.is_binary:
        return None
    rest = {name: value for name, value in record.items() if name != form.size}
    return [rest if form.is_json else record | {form.size: ""}]


def served_by(address: str) -> Damage:
    def damage(form: Form, record: Record) -> list[Record] | None:
        address_of = form.address.replace(LFN, record.get(form.host, "") if form.host == form.name else "")
        return [record | {form.host: address_of.format(address)}] if form.host else None

    return damage


def of_floats(form: Form, record: Record) -> list[Record] | None:
    if form.is_binary:
        return None
    numbers = {n: float(v) for n, v in record.items() if type(v) is int and n != "pseq"}
    return [record | numbers]


def later(form: Form, record: Record, **changes: Any) -> Record:
    """Another read of the same file."""
    first = record.get(form.another, "")
    another = {form.another: first + 1 if isinstance(first, int) else f"{first}b"} if form.another else {}
    pseq = {"pseq": record["pseq"] + 1} if "pseq" in record else {}
    return record | another | pseq | changes


def contradicting(form: Form, record: Record) -> list[Record] | None:
    other = {form.size: 2 * record[form.size]} if form.size else {}
    return [record, later(form, record, **other)] if form.size and not form.is_folder else None


def enveloped(form: Form, record: Record) -> list[Record] | None:
    return [record] if form.is_json and not form.is_binary else None


def same(form: Form, record: Record) -> list[Record] | None:
    return None if form.is_capture or form.text([record]) == "" else [record]


def two_reads(form: Form, record: Record) -> list[Record] | None:
    return [later(form, record), record] if form.another and not form.is_folder else None


DAMAGES: dict[str, Damage] = {
    "nothing": lambda form, record: [record],
    "order mark": same,
    "CRLF": same,
    "8.0 for 8": of_floats,
    "envelope": enveloped,
    "CGI with a token": moved(lambda path: f"{path}?authz=Bearer%20{TOKEN}&x=1"),
    "two slashes": moved(lambda path: f"/{path}" if path[0] == "/" else path),
    "no slash": moved(lambda path: path.removeprefix("/")),
    "`NA` as name": changed("name", lambda form, name: "NA"),
    "`null` as name": changed("name", lambda form, name: "null"),
    "`NA` as site": changed("place", lambda form, name: "NA"),
    "size absent": without_size,
    "size 0": changed("size", lambda form, size: 0),
    "size negative": changed("size", lambda form, size: -size),
    "two sizes": contradicting,
    "time 0": at(0),
    "time in 2049": at(LATER),
    "time with a fraction": at(START + 0.25),
    "end 0": at(0, "end"),
    "end in 2049": at(LATER, "end"),
    "a write": lambda form, record: [{**record, **form.write}] if form.write else None,
    "twice in a pull": lambda form, record: [record, record],
    "in two pulls": lambda form, record: [record],
    "the later one first": two_reads,
    "IPv6": served_by(SIX),
    "IPv6 in brackets": served_by(f"[{SIX}]"),
    "loopback": served_by("127.0.0.1"),
}


def named(record: Record, token: str, number: int) -> Record:
    """The good record, told from others by `token` and `number`."""
    return {
        name: value.replace("{}", token)
        if isinstance(value, str)
        else number * 4
        if name in ("id", "pseq")
        else value
        for name, value in record.items()
    }


def written(form: Form, kind: str, records: Sequence[Record]) -> bytes:
    """The file of `records` with the damage `kind` that files have."""
    text = form.text(records)
    if kind == "envelope":
        text = json_lines([{"_index": "i", "_source": json.loads(line)} for line in text.splitlines()])
    if kind == "CRLF":
        text = text.replace("\n", "\r\n")
    return codecs.BOM_UTF8 * (kind == "order mark") + text.encode()
