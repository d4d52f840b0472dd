"""Which files are told to Rucio; what no Rucio would answer is one error in words, or rows without a file."""

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import http_answers
import hypothesis.strategies as st
import pytest
import requests
from hypothesis import given

from features.common import deadline
from features.common.errors import ServiceError
from jobs.loop.ingest.sources import rucio_catalogue
from prefetch.lfn import Did
from prefetch.rucio import rse as rse_room
from prefetch.rucio import session as rucio
from prefetch.rucio.rse import ReportedReplicas, State, changes
from prefetch.rucio.session import RucioAccess, Session

STREAM = "application/x-json-stream"


class Rucio(http_answers.Answers):
    """Logs everybody in, and answers each path with what `answers` has for it, byte for byte."""

    answers: dict[str, bytes]

    def answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        body = next((body for start, body in self.answers.items() if path.startswith(start)), b"")
        if path == "/dids/bulkmeta":
            body = b"".join(line for line in body.splitlines(True) if b'"f"' not in line or b'"f"' in sent)
        if body.startswith(b"/"):
            return self.say(302, location=body.decode())
        login = {}
        if path.startswith("/auth"):
            later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
            login = {"x_rucio_auth_token": "account-token"}
            login["x_rucio_auth_token_expires"] = later.strftime("%a, %d %b %Y %H:%M:%S UTC")
        return self.say(200, body, content_type=STREAM, **login)

    do_GET = do_POST = answer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Session]]:
    handler = type("Answering", (Rucio,), {"answers": {}})
    with http_answers.answering(handler) as url:

        def answering(answers: dict[str, Any]) -> Session:
            handler.answers = {  # type: ignore[attr-defined]
                path: rows
                if isinstance(rows, bytes)
                else "".join(json.dumps(row) + "\n" for row in rows).encode()
                for path, rows in answers.items()
            }
            login = {"auth_type": "userpass", "username": "u", "password": "p-of-the-test", "account": "root"}
            return Session(
                RucioAccess(url=url, tokens=tmp_path / "tokens", timeout_s=60, attempts=1, **login),
                pause=lambda _s: None,
            )

        yield answering


RSES = [{"rse": "DISK", "volatile": False}]
META = {
    **{"scope": "mc", "name": "ds", "did_type": "DATASET", "length": 1, "bytes": 5},
    **{"created_at": "Sun, 01 Mar 2026 00:00:00 UTC", "datatype": "AOD", "campaign": None},
    "adler32": None,
}
FILE = {"parent_scope": "mc", "parent_name": "ds", "scope": "mc", "name": "f", "bytes": 5, "adler32": "0"}
HELD = {"rse": "DISK", "available_length": 1}
GOOD: dict[str, Any] = {
    "/rses/": RSES,
    "/dids/bulkmeta": [META, META | {"name": "f", "did_type": "FILE"}],
    "/dids/bulkfiles": [FILE],
    "/replicas/mc/ds/datasets": [HELD],
    "/dids/": [FILE],
}


def catalogue_rows(session: Session) -> list[Any]:
    return [row for rows in rucio_catalogue.rows(session, ["mc:ds"]) for row in rows]


BROKEN: list[tuple[str, Any]] = [
    *(("/rses/", rows) for rows in ([{"rse": "DISK"}], [{"rse": 3, "volatile": False}], ["DISK"], [None])),
    *(("/rses/", raw) for raw in (b"{", b"\xff\xfe", b'{"rse": "\\ud800"', b"[" * 100_000)),
    *(("/dids/bulkmeta", [{**META, **change}]) for change in ({"scope": None}, {"name": ["ds"]})),
    *(("/dids/bulkmeta", [{**META, **change}]) for change in ({"did_type": 3}, {"created_at": 3})),
    *(("/dids/bulkmeta", [{**META, **change}]) for change in ({"length": "many"}, {"created_at": "never"})),
    ("/dids/bulkmeta", [{"scope": "mc", "name": "ds"}]),
    ("/dids/bulkmeta", ["ds"]),
    *(("/dids/bulkfiles", [{**FILE, **change}]) for change in ({"parent_name": "other"}, {"scope": 1})),
    ("/dids/bulkfiles", [{"name": "f"}]),
    ("/replicas/mc/ds/datasets", [{"rse": "DISK"}]),
    ("/replicas/mc/ds/datasets", [{"rse": ["DISK"], "available_length": 1}]),
    ("/replicas/mc/ds/datasets", [{"rse": "DISK", "available_length": "1"}]),
]


@pytest.mark.parametrize(("path", "answer"), BROKEN, ids=[f"{p}-{str(a)[:40]}" for p, a in BROKEN])
def test_an_answer_that_no_rucio_gives_is_an_error_in_words(
    server: Callable[[dict[str, Any]], Session], path: str, answer: Any
) -> None:
    with pytest.raises(ServiceError, match="Rucio at http://127") as caught:
        catalogue_rows(server({path: answer} | {k: v for k, v in GOOD.items() if k != path}))
    assert len(str(caught.value)) < 600


def test_an_rse_that_got_more_of_an_open_dataset_meanwhile_stays_an_origin(
    server: Callable[[dict[str, Any]], Session],
) -> None:
    file = {"scope": "mc", "name": "f", "states": {"DISK": "AVAILABLE"}}
    more = {"/replicas/mc/ds/datasets": [HELD | {"available_length": 2}], "/replicas/list": [file]}
    (row,) = catalogue_rows(server(GOOD | more))
    assert row["rses"] == ["DISK"]


@pytest.mark.parametrize(
    "row", [{"scope": "mc", "name": "f"}, {"scope": "mc", "name": "f", "states": ["DISK"]}, {"states": {}}, 3]
)
def test_replicas_of_another_form_are_an_error_in_words(
    server: Callable[[dict[str, Any]], Session], row: Any
) -> None:
    with pytest.raises(ServiceError, match="Rucio at http://127"):
        list(rucio.replicas(server({"/replicas/list": [row]}), [Did("mc", "f")]))


@pytest.mark.parametrize("answer", [{}, {"volatile": True}, {"volatile": True, "protocols": 3}])
def test_an_rse_of_another_form_is_an_error_in_words(
    server: Callable[[dict[str, Any]], Session], answer: dict[str, Any]
) -> None:
    at = server({"/rses/R": [answer], "/rses/": [{"rse": "R"}]})
    with pytest.raises(ServiceError, match="Rucio at http://127"):
        rse_room.check(at, "R")


@pytest.mark.parametrize("path", ["/rses/", "/auth/"])
def test_a_redirect_gets_neither_the_token_nor_the_password(
    server: Callable[[dict[str, Any]], Session], path: str
) -> None:
    answers = {path: b"//elsewhere.invalid/"} | {k: v for k, v in GOOD.items() if k != path}
    with pytest.raises(ServiceError, match=r"Rucio at http://127.*TooManyRedirects"):
        catalogue_rows(server(answers))


def test_a_login_in_netrc_is_sent_to_nobody(
    server: Callable[[dict[str, Any]], Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login ada password of-another-server\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    sent: list[str | None] = []
    monkeypatch.setattr(Rucio, "log_request", lambda self, *_: sent.append(self.headers["Authorization"]))
    assert catalogue_rows(server(GOOD | {"/rses/": b"/elsewhere", "/elsewhere": RSES}))
    assert set(sent) == {None}


def test_names_with_breaks_and_dots_stay_one_line_each(server: Callable[[dict[str, Any]], Session]) -> None:
    name = "../../etc\n/\u2028x"
    files = [META | {"name": name, "did_type": "FILE"}]
    answers = {"/dids/bulkmeta": [META, *files], "/dids/bulkfiles": [FILE | {"name": name}]}
    lines = [rucio_catalogue.line(row, "2026-03-01") for row in catalogue_rows(server(GOOD | answers))]
    assert name in {json.loads(line).get("name") for line in lines}
    assert all(len(line.splitlines()) == 1 for line in lines)


@pytest.mark.parametrize(("variable", "verifies"), [("", True), ("  ", True), ("/ca", "/ca")])
def test_an_empty_folder_of_cas_does_not_end_the_check_of_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, verifies: object
) -> None:
    verified = []

    def get(_self: requests.Session, _url: str, **options: object) -> None:
        verified.append(options["verify"])
        raise requests.ConnectionError("seen")

    monkeypatch.setenv("X509_CERT_DIR", variable)
    monkeypatch.setattr(requests.Session, "get", get)
    login = {"auth_type": "userpass", "username": "u", "password": "p-of-the-test", "account": "root"}
    access = RucioAccess(url="https://rucio.invalid", tokens=tmp_path, timeout_s=1, attempts=1, **login)
    with pytest.raises(ServiceError):
        Session(access).ask("RSEs", lambda client: client.list_rses())
    assert set(verified) == {verifies}


def test_an_answer_without_an_end_names_the_server(
    server: Callable[[dict[str, Any]], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "MOST_BYTES", 2**16)
    rows = [{"rse": f"R{n}", "volatile": False} for n in range(10_000)]
    with pytest.raises(ServiceError, match=r"Rucio at http://127.*longer than"):
        catalogue_rows(server(GOOD | {"/rses/": rows}))


DIDS = st.builds(Did, st.just("s"), st.sampled_from("abcdefgh"))
STATES = st.sampled_from(["adding", "there", "removing", "unknown"])


@given(st.sets(DIDS), st.dictionaries(DIDS, STATES), st.sets(DIDS))
def test_after_telling_rucio_has_what_is_held(
    held: set[Did], states: dict[Did, str], unknown: set[Did]
) -> None:
    """A plain model of Rucio: it has what is `there`, perhaps what is open, and takes only what it knows."""
    states = {
        did: "unknown" if did in unknown else "there" if s == "unknown" else s for did, s in states.items()
    }
    rucio = {did for did, state in states.items() if state in ("there", "removing") and did not in unknown}
    what = changes(held, states)
    rucio = (rucio - set(what.remove)) | {did for did in what.add if did not in unknown}
    assert rucio == held - unknown
    assert not set(what.remove) & held
    assert [sorted(part) for part in what] == list(what)
    # What is confirmed and still held is not told again.
    assert not set(what.add) & {did for did, state in states.items() if state == "there"}


def test_the_memory_holds_the_last_state_of_each_rse(tmp_path: object) -> None:
    reported = ReportedReplicas(f"{tmp_path}/journal.db")
    many = [Did("s", str(number)) for number in range(10_001)]
    states: tuple[State, ...] = ("adding", "there")
    for state in states:
        reported.note("A", many, state, now_s=1.0)
    reported.note("B", many[:1], "removing", now_s=1.0)
    reported.forget("A", many[1:])
    reported.close()
    again = ReportedReplicas(f"{tmp_path}/journal.db")
    assert again.states("A") == {many[0]: "there"}
    assert again.states("B") == {many[0]: "removing"}
    again.close()
