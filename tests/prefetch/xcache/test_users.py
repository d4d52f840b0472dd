"""Records that name users: of a real XRootD 5.5.3, and of nobody's making."""

from __future__ import annotations

import base64
import contextlib
import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitoring import users

from features.common.errors import InputError
from prefetch.xcache.events import frame
from prefetch.xcache.fstream import MAX_CHARS, Login, Work, decode_session
from prefetch.xcache.gstream import CaptureReader

STOD, SERVER, HOST = 0x6B036137, 26639589911912, "26639589911912@[::ffff:127.0.0.1]"
# `xrootd.monitor all auth … dest fstat user info …`, without and with `sec.protocol unix`.
PLAIN = f"xroot/nobody.6923:{HOST}\n&R=v5.5.3&x=task-42&y=&I=4"
UNIX = (
    f"xroot/pilot.7177:{HOST}\n&p=unix&n=alice&h=[::ffff:127.0.0.1]&o=&r=&g=root&m=&R=v5.5.3&x=xrdcp&y=&I=4"
)
JOB = f"xroot/root.7136:{HOST}\ncrab:job 17"


datagram = partial(users, stod=STOD)


@pytest.mark.parametrize(("text", "user"), [(PLAIN, "nobody"), (UNIX, "alice")])
def test_a_login_has_the_name_that_was_authenticated_else_that_of_the_client(text: str, user: str) -> None:
    assert decode_session(datagram(b"u", text, 3)) == Login(STOD, SERVER, 3, text.partition("\n")[0], user)


def test_a_client_may_say_what_it_works_for() -> None:
    assert decode_session(datagram(b"i", JOB)) == Work(STOD, SERVER, JOB.partition("\n")[0], "crab:job 17")


@pytest.mark.parametrize(
    ("text", "user"),
    [
        (f"a.b:1@c/d.1:5@e.22:{HOST}", "d.1:5@e"),
        (f"x.1:{HOST}\n&R=v5&y=\n&p=gsi&n=root", "x"),
        (f"{'x' * (MAX_CHARS + 1)}.1:{HOST}", ""),
        (f".1:{HOST}", ""),
    ],
)
def test_names_that_clients_make_up_are_only_names(text: str, user: str) -> None:
    found = decode_session(datagram(b"u", text))
    assert isinstance(found, Login) and found.user == user and found.server_id == SERVER


@pytest.mark.parametrize(
    "bad", [b"", b"u\1\0\x0c", datagram(b"f", PLAIN), datagram(b"u", "nobody"), b"u" * 99]
)
def test_what_names_no_session_is_an_input_error(bad: bytes) -> None:
    with pytest.raises(InputError):
        decode_session(bad)


@given(st.binary(max_size=200), st.sampled_from([b"u", b"i", b"f", b"\xff"]))
def test_any_bytes_give_a_name_or_an_input_error(body: bytes, code: bytes) -> None:
    for one in (body, datagram(code, body), datagram(code, b"a.1:2@" + body)):
        with contextlib.suppress(InputError):
            assert isinstance(decode_session(one), Login | Work)


def test_a_capture_keeps_names_beside_the_streams(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    bad = json.dumps({"code": "u", "data": base64.b64encode(b"u").decode()}).encode() + b"\n"
    kept = [datagram(b"u", UNIX), datagram(b"i", JOB)]
    path.write_bytes(b"".join(frame(1, 1, one) for one in kept) + b"@@1 1 %d\n%s" % (len(bad), bad))
    reader = CaptureReader(path)
    assert [type(one) for one in reader.events()] == [Login, Work]
    assert (reader.n_malformed, reader.n_lost) == (1, 0)
