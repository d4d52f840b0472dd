"""Whether a service answers: a line of the doctor's table, or what it answered."""

import contextlib
import dataclasses
import http.client
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from features.common import strict_json

TIMEOUT_S = 3.0
MAX_BYTES = 2**20  # longest answer that is read
OUT_OF_DATE = (
    ": its database schema is not that of its version; back the database up, then run beside the server: "
    "mlflow db upgrade DATABASE_URI"
)


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the doctor's table: `state` is ok, off (not configured) or bad."""

    part: str
    configured: str
    state: str
    detail: str


def accepts(part: str, url: str, default_port: int) -> Check:
    """Whether the host and port of `url` accept a connection."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or default_port
    except ValueError:
        return Check(part, url, "bad", "not a URL with a port")
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S):
            return Check(part, url, "ok", f"{host}:{port} accepts connections")
    except UnicodeError:
        return Check(part, url, "bad", f"{host!r} is no name of a host")
    except OSError as error:
        return Check(part, url, "bad", f"{host}:{port}: {error.strerror or type(error).__name__}")


def believing(authorities: str) -> ssl.SSLContext:
    """TLS that believes the authorities in a file, or in a folder of theirs, alone. Raises OSError."""
    file, folder = (None, authorities) if Path(authorities).is_dir() else (authorities, None)
    return ssl.create_default_context(cafile=file, capath=folder)


def answers(part: str, configured: str, url: str, *, tls: ssl.SSLContext | None = None) -> Check:
    """Whether `url` answers with success."""
    reply = fetched(url, tls=tls)
    if isinstance(reply, str):
        return Check(part, configured, "bad", reply)
    return Check(part, configured, "ok", "answers (200)")


def health(url: str, *, tls: ssl.SSLContext | None = None) -> dict[str, Any] | str:
    """The JSON object at `url`, or why there is none."""
    reply = fetched(url, tls=tls)
    if isinstance(reply, str):
        return reply
    try:
        content = strict_json.loads(reply)
    except ValueError:
        content = None
    return content if isinstance(content, dict) else "answers, but not as this service"


def fetched(url: str, *, tls: ssl.SSLContext | None = None) -> bytes | str:
    """What `url` answers, or why it does not."""
    if not url.startswith(("http://", "https://")):
        return "not an http(s) URL"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=tls) as reply:  # noqa: S310 - see above
            content: bytes = reply.read(MAX_BYTES)
            return content
    except urllib.error.HTTPError as error:
        text = b""
        with contextlib.suppress(OSError, http.client.HTTPException):
            text = error.read(MAX_BYTES)
        return f"answers {error.code}{OUT_OF_DATE if b'out-of-date database schema' in text else ''}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"does not answer ({type(error).__name__})"
