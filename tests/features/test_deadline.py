"""Servers that never end an answer, or fill the memory with it."""

import gzip
import itertools
import time
from collections.abc import Iterator

import http_answers
import pytest
import requests

from features.common import deadline

TIMEOUT_S = 0.2


class Handler(http_answers.Answers):
    protocol_version = "HTTP/1.1"
    asked: list[tuple[str | None, int]]

    def do_GET(self) -> None:
        self.asked.append((self.headers["Accept-Encoding"], self.client_address[1]))
        try:
            getattr(self, f"_{self.path[1:]}")()
        except OSError:
            self.close_connection = True

    def _start(self, *headers: tuple[str, str]) -> None:
        self.send_response(200)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def _good(self) -> None:
        self.say(200, b"good")

    def _drips(self) -> None:
        self._start(("Content-Length", "1000000"))
        self._slowly()

    def _headers(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        self._slowly()

    def _slowly(self) -> None:
        for _ in range(1000):
            self.wfile.write(b"x")
            time.sleep(TIMEOUT_S / 4)

    def _long(self) -> None:
        self._start(("Transfer-Encoding", "chunked"))
        for _ in itertools.repeat(None, 1000):
            self.wfile.write(b"10000\r\n" + b"x" * 2**16 + b"\r\n")

    def _continues(self) -> None:
        for _ in itertools.repeat(None, 10**7):
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    def _packed(self) -> None:
        self.say(200, gzip.compress(bytes(2**20)), content_encoding="gzip")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(deadline, "MOST_BYTES", 2**20)
    monkeypatch.setattr(deadline, "TIMES_THE_TIMEOUT", 10)
    monkeypatch.setattr(Handler, "asked", [], raising=False)
    with http_answers.answering(Handler) as url:
        yield url


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("drips", "longer than 2 s"),
        ("headers", "longer than 2 s"),
        ("long", "longer than 1 MiB"),
        ("continues", "longer than 1 MiB"),
        ("packed", "compressed"),
    ],
)
def test_an_answer_without_an_end_is_an_error_in_time(
    url: str, path: str, words: str, is_stream: bool
) -> None:
    began = time.monotonic()
    with deadline.bounded(requests.Session()) as session, pytest.raises(deadline.EndlessError, match=words):
        _ = session.get(f"{url}/{path}", timeout=TIMEOUT_S, stream=is_stream).content
    assert time.monotonic() - began < 2 * deadline.TIMES_THE_TIMEOUT * TIMEOUT_S


def test_others_are_as_ever_and_connections_are_kept(url: str) -> None:
    session = deadline.bounded(deadline.bounded(requests.Session()))
    with session:
        for _ in range(3):
            assert session.get(f"{url}/good", timeout=TIMEOUT_S).content == b"good"
    assert [encoding for encoding, _ in Handler.asked] == ["identity"] * 3
    assert len({port for _, port in Handler.asked}) == 1
