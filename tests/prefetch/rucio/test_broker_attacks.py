"""A broker that lies: its memory, its silence and its certificate are bounded, and each has its reason."""

import contextlib
import itertools
import random
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from certificates import certificate

from features.common.errors import ConfigError
from prefetch.rucio import broker as of_broker
from prefetch.rucio.broker import Broker, BrokerAccess, BrokerUnavailable, Subscription
from prefetch.rucio.connection import Message

MOST_BYTES = 2**20
PATIENCE_S = 120.0
BEGINNING = b"MESSAGE\nmessage-id:1\nack:1\n"

Sends = Callable[[], Iterator[bytes]]


def message(body: bytes, ack: str, *, has_length: bool = True) -> bytes:
    length = f"content-length:{len(body)}\n" if has_length else ""
    return f"MESSAGE\nmessage-id:{ack}\nack:{ack}\n{length}\n".encode() + body + b"\0"


@contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that talks to its first client, then is silent until that goes."""

    def serve() -> None:
        client, _ = server.accept()
        with client, contextlib.suppress(OSError):
            talk(client)
            while client.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def lying(sends: Sends, beats: str = "1000,1000", answers: bool = False) -> AbstractContextManager[int]:
    """The port of a broker that takes one subscription, sends, and is silent; `answers`: but confirms."""

    def talk(client: socket.socket) -> None:
        for answer in (f"CONNECTED\nversion:1.2\nheart-beat:{beats}\n\n\0", "RECEIPT\nreceipt-id:0\n\n\0"):
            client.recv(4096)
            client.sendall(answer.encode())
        for some in sends():
            client.sendall(some)
        while answers and client.recv(4096):
            client.sendall(b"RECEIPT\nreceipt-id:asked\n\n\0")

    return talking(talk)


def messages(following: Subscription, n_wanted: int) -> list[Message]:
    deadline, received = time.monotonic() + PATIENCE_S, list[Message]()
    while len(received) < n_wanted and time.monotonic() < deadline:
        message = following.next(0.2)
        received += [] if message is None else [message]
    return received


def subscribed(port: int) -> AbstractContextManager[Subscription]:
    broker = Broker(BrokerAccess(f"stomp://127.0.0.1:{port}", timeout_s=60))
    return broker.subscribed(["/queue/x"], client="c", most_bytes=MOST_BYTES)


def followed(port: int, n_wanted: int) -> list[Message]:
    with subscribed(port) as following:
        return messages(following, n_wanted)


def endless(first: bytes, then: bytes) -> Sends:
    return lambda: itertools.chain([first], [then] * 2**10)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_broker, "SILENT_S", 1.0)


@pytest.mark.parametrize(
    ("sends", "reason"),
    [
        (endless(BEGINNING + b"\n", b"x" * 2**16), "silent"),
        (endless(BEGINNING + b"x:", b"x" * 2**16), "headers of more than 64 KiB"),
        (endless(BEGINNING, b"x:y\n" * 2**14), "headers of more than 64 KiB"),
        (lambda: iter([BEGINNING + b"content-length:" + b"9" * 18 + b"\n\nx\0"]), "impossible length"),
    ],
)
def test_a_frame_without_end_is_an_error_in_bounded_memory(
    sends: Sends, reason: str, impatient: None
) -> None:
    tracemalloc.start()
    try:
        with lying(sends) as port, pytest.raises(BrokerUnavailable, match=reason):
            followed(port, 1)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"\0", b"x"])
@pytest.mark.parametrize("has_length", [True, False])
def test_a_message_of_30_mb_is_passed_over_and_the_next_is_read(content: bytes, has_length: bool) -> None:
    def sends() -> Iterator[bytes]:
        whole = message(content * 30 * 2**20, "large", has_length=has_length or content == b"\0")
        yield from (whole[first : first + 2**16] for first in range(0, len(whole), 2**16))
        yield message(b"next", "next")

    with lying(sends) as port:
        large, other = followed(port, 2)
    assert (large.body, large.ticket) == (None, "large")
    assert (other.body, other.ticket) == (b"next", "next")


def test_a_broker_that_sends_more_than_asked_for_has_to_wait() -> None:
    def sends() -> Iterator[bytes]:
        for number in range(300):
            yield message(b"x" * (MOST_BYTES - 1), str(number))

    with lying(sends) as port, subscribed(port) as following:
        time.sleep(3)
        assert following._listener.messages.qsize() <= 100


@pytest.mark.parametrize("seed", range(5))
def test_frames_are_the_same_however_they_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    bodies = [chance.randbytes(chance.choice((0, 1, 10, 3000))) for _ in range(50)]
    content = b"".join(
        message(body, str(n), has_length=b"\0" in body or n % 2 == 0) + b"\n" * chance.randrange(3)
        for n, body in enumerate(bodies)
    )

    def sends() -> Iterator[bytes]:
        at = 0
        while at < len(content):
            n_bytes = chance.choice((1, 2, 50, 20_000))
            yield content[at : at + n_bytes]
            at += n_bytes

    with lying(sends) as port:
        received = followed(port, len(bodies))
    assert [each.body for each in received] == bodies


@pytest.mark.parametrize("beats", ["0,0", "0," + "9" * 40, "1000,1000"])
def test_a_broker_that_hangs_is_noticed_also_without_heart_beats(
    beats: str, impatient: None, capfd: pytest.CaptureFixture[str]
) -> None:
    with lying(lambda: iter(()), beats) as port, pytest.raises(BrokerUnavailable, match="it is silent"):
        followed(port, 1)
    assert "Traceback" not in capfd.readouterr().err


def test_a_quiet_broker_without_heart_beats_is_asked_and_kept(impatient: None) -> None:
    with lying(lambda: iter(()), "0,0", answers=True) as port, subscribed(port) as following:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert following.next(0.1) is None


@pytest.mark.parametrize(
    ("host", "days", "reason"),
    [("localhost", -1, "has expired"), ("other.example.org", 1, "not valid for 'localhost'")],
)
def test_what_is_wrong_with_a_certificate_is_said(host: str, days: int, reason: str, tmp_path: Path) -> None:
    pem = certificate(tmp_path, host, days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client, contextlib.suppress(OSError):
                    context.wrap_socket(client, server_side=True).recv(10)

        threading.Thread(target=serve, daemon=True).start()
        broker = Broker(
            BrokerAccess(f"stomp+ssl://localhost:{server.getsockname()[1]}", ca_cert=str(pem), timeout_s=60)
        )
        with (
            pytest.raises(BrokerUnavailable, match=reason),
            broker.subscribed(["/queue/x"], client="c", most_bytes=9),
        ):
            pass


@pytest.mark.parametrize(
    "url",
    [
        *("stomp://h:port", "stomp://h:99999", "stomp://h:0", "stomp://h", "stomp://[::1"),
        *("http://h:1", "h:1", "stomp://user:secret@h:1"),
    ],
)
def test_what_is_no_brokers_url_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(ConfigError, match="must be as stomp://"):
        Broker(BrokerAccess(url))


def test_a_folder_of_authorities_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder, and must be a file"):
        Broker(BrokerAccess("stomp+ssl://localhost:1", ca_cert=str(tmp_path)))


def test_a_broker_that_is_down_is_said_to_refuse() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokerUnavailable, match="Connection refused"):
        followed(port, 1)


CONNECTED = b"CONNECTED\nversion:1.2\nheart-beat:1000,1000\n\n\0"
RECEIPTS = b"RECEIPT\nreceipt-id:0\n\n\0RECEIPT\nreceipt-id:1\n\n\0"
PASSWORD = "pass-word"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([f"ERROR\nmessage:User u or {PASSWORD} is invalid\n\n\0".encode()], "User u or .* is invalid"),
        ([], "1 of 1 answers are missing"),
        ([CONNECTED], "2 of 2 answers are missing"),
        ([CONNECTED, RECEIPTS + b"MESSAGE\nmessage-id:1\n\nx\0"], "cannot be acknowledged"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "missing|closed"),
    ],
    ids=["refuses", "silent", "takes no subscription", "unacknowledgeable", "speaks HTTP"],
)
def test_a_broker_that_cannot_be_followed_is_told_without_the_password(
    answers: list[bytes], reason: str
) -> None:
    with answering(answers) as port, pytest.raises(BrokerUnavailable, match=reason) as caught:
        url = f"stomp://127.0.0.1:{port}"
        broker = Broker(BrokerAccess(url, username="u", password=PASSWORD, timeout_s=3))
        with broker.subscribed(["/queue/x", "/queue/y"], client="c", most_bytes=MOST_BYTES) as following:
            messages(following, 1)
    assert PASSWORD not in str(caught.value)


def answering(answers: list[bytes]) -> AbstractContextManager[int]:
    """The port of a server that gives these answers, one to each thing that is said to it, then none."""

    def talk(client: socket.socket) -> None:
        for answer in answers:
            client.recv(4096)
            client.sendall(answer)

    return talking(talk)
