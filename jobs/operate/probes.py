"""Questions to servers: whether something accepts a connection, answers HTTP, or says that it is healthy."""

from __future__ import annotations

import dataclasses
import http.client
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from features.common import strict_json

TIMEOUT_S = 3.0
MAX_BYTES = 2**20
"""Longest answer that is read."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the doctor's table: `state` is ok, off (not configured) or bad."""

    part: str
    configured: str
    state: str
    detail: str


def accepts(part: str, configured: str, url: urllib.parse.SplitResult, default_port: int) -> Check:
    """Whether the host and port of `url` accept a connection."""
    try:
        host, port = url.hostname or "localhost", url.port or default_port
    except ValueError:
        return Check(part, configured, "bad", "not a URL with a port")
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S):
            return Check(part, configured, "ok", f"{host}:{port} accepts connections")
    except OSError as error:
        return Check(part, configured, "bad", f"{host}:{port}: {error.strerror or type(error).__name__}")


def answers(part: str, configured: str, url: str) -> Check:
    """Whether `url` answers with success."""
    found = fetched(url)
    if isinstance(found, str):
        return Check(part, configured, "bad", found)
    return Check(part, configured, "ok", "answers (200)")


def health(url: str, *, tls: ssl.SSLContext | None = None) -> dict[str, Any] | str:
    """The JSON object at `url`, or why there is none."""
    found = fetched(url, tls=tls)
    if isinstance(found, str):
        return found
    try:
        told = strict_json.loads(found)
    except ValueError:
        told = None
    return told if isinstance(told, dict) else "answers, but not as this service"


def fetched(url: str, *, tls: ssl.SSLContext | None = None) -> bytes | str:
    """What `url` answers, or why it does not."""
    if not url.startswith(("http://", "https://")):
        return "not an http(s) URL"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=tls) as reply:  # noqa: S310 - see above
            content: bytes = reply.read(MAX_BYTES)
            return content
    except urllib.error.HTTPError as error:
        return f"answers {error.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"does not answer ({type(error).__name__})"
