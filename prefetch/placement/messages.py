"""What callers send, checked before anything else sees it, and replies that are made once and sent often."""

import hashlib
import ipaddress
import json
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import pydantic

from features.common.errors import InputError, bounded
from features.common.names import UNFIT

MAX_NAME_BYTES = 1024
OTHER = "other"
"""The site of datasets that are placed nowhere; Rucio and PanDA know the word."""

_UNFIT = re.compile(UNFIT)
_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])"
_NUMERIC = re.compile(r"(?:0x[0-9a-fA-F]*|[0-9]+)(?:\.(?:0x[0-9a-fA-F]*|[0-9]+)){0,3}\.?")
_ADDRESS = re.compile(rf"(?:x?roots?://)?({_HOST}):([0-9]{{1,5}})/?")


def checked_name(text: str) -> str:
    """A file or dataset name, with or without scope. Raises InputError."""
    n_bytes = len(text.encode("utf-8", "surrogatepass"))
    if not 0 < n_bytes <= MAX_NAME_BYTES or _UNFIT.search(text):
        raise InputError(f"not a name: {text[:100]!r}; at most {MAX_NAME_BYTES} bytes, no control characters")
    return text


def checked_site(text: str) -> str:
    """The name of a site, a client or a server. Raises InputError."""
    if not _SITE.fullmatch(text):
        raise InputError(f"not a site: {text[:100]!r}; letters, digits, '.', '_' and '-', at most 64")
    return text


def checked_address(text: str) -> str:
    """`host:port`, the form Rucio prefixes, of that or of `root://host:port`. Raises InputError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 2**16:
        raise InputError(f"not an address: {text[:100]!r}; write for example xc1.example.org:1094")
    return f"{match[1]}:{int(match[2])}"


def host_and_port(address: str) -> tuple[str, int]:
    """A checked address by which two spellings of one name are equal."""
    host, _, port = address.rpartition(":")
    return host.lower().removesuffix("."), int(port)


def dataset_of(did: str) -> str:
    """The did under which a dataset is placed: a CMS block (`…#uuid`) goes with its dataset."""
    return did.partition("#")[0]


class Member(NamedTuple):
    """A configured cache: what its heartbeats stand for, whatever they say. Drained, it serves nobody."""

    site: str
    address: str
    size_bytes: int
    is_drained: bool = False


Members = Mapping[str, Member]
_MOST_BYTES = 2**62


def joining(site: str, *, at: str | None, address: str | None, size: object) -> Member:
    """What the heartbeat of a node says that is not configured, by the token of `site`. Raises InputError."""
    if at not in (None, site):
        raise InputError(f"this is the token of federation {site}, and the heartbeat names {at}")
    if address is None or not isinstance(size, int) or size is True or not 0 < size < _MOST_BYTES:
        raise InputError("a node that is not configured gives its address, and its size in bytes")
    if _is_of_one_machine(host_and_port(checked_address(address))[0]):
        raise InputError(f"jobs would not come to {address}: it is another machine on each of theirs")
    return Member(site, checked_address(address), size)


def _is_of_one_machine(host: str) -> bool:
    """Whether each machine takes `host` for itself, or for what only it can reach."""
    try:
        # Resolvers also read 127.1, 0 and 0x7f000001 as addresses.
        ip = ipaddress.ip_address(socket.inet_aton(host) if _NUMERIC.fullmatch(host) else host.strip("[]"))
    except (OSError, ValueError):
        return host == "localhost" or host.endswith(".localhost") or _NUMERIC.fullmatch(host) is not None
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast


def member(members: Members, cache: str, *, site: str | None, address: str | None) -> Member:
    """The configuration of `cache`; a heartbeat's `site` and `address` must agree. Raises InputError."""
    known = members.get(cache)
    if known is None:
        raise InputError(
            f"no cache server is called {cache!r} here; add an XCache of this name to the settings, restart"
        )
    for name, stated, ours in (("site", site, known.site), ("address", address, known.address)):
        if stated is not None and stated != ours:
            raise InputError(f"{name} of {cache} is {ours} by configuration, and {stated} by its heartbeat")
    return known


MAX_INPUTS = 10_000
_MAX_NUMBER = 1e18


def _checked(check: Callable[[str], str]) -> pydantic.AfterValidator:
    def convert(text: str) -> str:
        try:
            return check(text)
        except InputError as error:
            raise ValueError(str(error)) from None

    return pydantic.AfterValidator(convert)


SiteName = Annotated[str, _checked(checked_site)]
FileName = Annotated[str, _checked(checked_name)]
Address = Annotated[str, _checked(checked_address)]
Seconds = Annotated[float, pydantic.Field(ge=0, le=_MAX_NUMBER, allow_inf_nan=False)]


class Heartbeat(pydantic.BaseModel):
    """A cache server reports that it is alive; site and address, if given, are the configured ones.

    A node that is not configured gives its address and its size in bytes.
    """

    id: SiteName
    site: SiteName | None = None
    address: Address | None = None
    size: Any = None


class Input(pydantic.BaseModel):
    """A file or dataset that a job reads, with its size in bytes where the caller knows it."""

    did: FileName
    size_bytes: Annotated[int, pydantic.Field(ge=0, le=10**18)] | None = None


class ScoreAsked(pydantic.BaseModel):
    """A batch system asks where a job should run. `waited_s`: how long the job has been idle, s."""

    # An error per input would take longer than their ranking.
    inputs: Annotated[
        list[FileName | Input], pydantic.Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)
    ]
    waited_s: Seconds = 0.0
    max_wait_s: Seconds | None = None


# In the place of FastAPI's own parsing, which would do this work in the event loop.
_DEFINED = "#/paths/~1score/post/requestBody/content/application~1json/schema/$defs/{model}"
_SCORE_SCHEMA = ScoreAsked.model_json_schema(ref_template=_DEFINED)
SCORE_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _SCORE_SCHEMA}}}
}
"""The body of `/score` in the OpenAPI document."""


def score_asked(body: bytes) -> ScoreAsked:
    """The parsed body of `/score`. Takes up to 0.1 s: call it outside the event loop. Raises InputError."""
    try:
        return ScoreAsked.model_validate_json(body)
    except pydantic.ValidationError as error:
        raise InputError(first_fault(error.errors(include_url=False, include_input=False)[0])) from None


def first_fault(fault: Mapping[str, Any]) -> str:
    return bounded(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")


Message = dict[str, Any]
"""What an ASGI application sends."""


class PreparedAnswer(NamedTuple):
    """A reply: its two messages, its ETag, and the message sent instead if the client has it already."""

    start: Message
    body: Message
    etag: bytes
    unchanged: Message


NO_BODY: Message = {"type": "http.response.body", "body": b""}

Header = tuple[bytes, bytes]


def json_answer(
    value: object, *, max_age_s: int, status: int = 200, more: Sequence[Header] = ()
) -> PreparedAnswer:
    """`value` as a JSON reply, with `more` headers. Caches may keep it for `max_age_s` seconds; 0: not."""
    body = json.dumps(value, separators=(",", ":")).encode()
    tag = etag(body)
    keep = b"public, max-age=%d" % max_age_s if max_age_s else b"no-store"
    shared = [(b"etag", tag), (b"cache-control", keep)]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *shared, *more]
    return PreparedAnswer(
        _start(status, headers), {"type": "http.response.body", "body": body}, tag, _start(304, shared)
    )


def etag(content: bytes) -> bytes:
    return b'"' + hashlib.sha256(content).hexdigest()[:24].encode() + b'"'


def _start(status: int, headers: list[Header]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}
