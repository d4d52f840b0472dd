"""A session with a Rucio server, which gives a whole answer, or an error that says what to do.

It uses rucio-clients, with the ways to log in that sites use, and adds what that leaves open: an answer is
read whole before it is used, as a server may die in the middle of it; a temporary fault is tried again after
ever longer pauses; nothing waits for a person; tokens are kept apart by server; its log, which holds
passwords at DEBUG, is dropped.
"""

import dataclasses
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
import tenacity
from rucio.client import Client
from rucio.common import exception as rucio
from rucio.common.utils import wlcg_token_discovery

from features.common import deadline
from features.common.arrays import pages
from features.common.errors import ConfigError, ServiceError, bounded, without_secrets
from prefetch.lfn import Did

T = TypeVar("T")
Form = Mapping[str, tuple[type, ...]]
"""The fields that each row of an answer must have, and the types they may be of."""
ANYTHING: Form = MappingProxyType({})
_SILENT = logging.Logger("rucio-clients", logging.CRITICAL)
_SILENT.addHandler(logging.NullHandler())
_LONGEST_PAUSE_S = 30.0
_MOST_CAUSE_CHARS = 200
# The class of an error that the server did not name; its text then holds the status.
_MAY_PASS = re.compile(r"http status code: (429|5\d\d)")
_PASSING = (requests.RequestException, OSError, rucio.ServerConnectionException, rucio.DatabaseException)
_REFUSED = (rucio.CannotAuthenticate, rucio.AccessDenied, rucio.NoAuthInformation)


class NamesRefused(ServiceError):
    """A name in the question is none by the server's rules; all of it is refused."""


@dataclasses.dataclass(frozen=True)
class RucioAccess:
    """How to reach a server and log in; empty texts are not given.

    `timeout_s`: of one connection, and of every silence in an answer (`features.common.deadline`).
    `attempts`: tries of one question.
    `tokens`: folder where login tokens are kept from run to run, for this user alone.
    """

    url: str
    auth_type: str
    account: str
    tokens: Path
    auth_url: str = ""
    vo: str = ""
    ca_cert: str = ""
    username: str = ""
    password: str = dataclasses.field(default="", repr=False)
    client_cert: str = ""
    client_key: str = ""
    client_proxy: str = ""
    timeout_s: int = 60
    attempts: int = 4


class Session:
    """A session with one server, which is asked one question at a time; it logs in at the first."""

    def __init__(self, access: RucioAccess, *, pause: Callable[[float], None] = time.sleep) -> None:
        """`pause` waits so many seconds between two tries. Raises ConfigError where a setting is missing."""
        self._access, self._pause = access, pause
        self._creds = _credentials(access)
        self._client: Any = None

    def ask(self, what: str, question: Callable[[Any], Iterable[T]], *, form: Form = ANYTHING) -> list[T]:
        """All that `question` gives, put to the server's client; `what` names it in errors.

        Raises ServiceError: the server is unavailable (after `attempts` tries), refuses us or the question,
        or a row of its answer is not of `form`.
        """
        tries = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._access.attempts),
            wait=tenacity.wait_exponential(multiplier=1, max=_LONGEST_PAUSE_S),
            retry=tenacity.retry_if_exception(_may_pass),
            sleep=self._pause,
            reraise=True,
        )
        try:
            rows = tries(lambda: list(question(self._connected())))
        except (rucio.RucioException, requests.RequestException, OSError) as error:
            raise self._failed(what, error) from None
        except deadline.EndlessError as error:
            raise ServiceError(f"Rucio at {self._access.url} ({what}): {error}") from None
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
            # rucio-clients believes that every answer is one of Rucio's.
            raise self.strange(what, f"it cannot be read ({type(error).__name__})") from None
        for row in rows:
            if odd := _odd_field(row, form):
                raise self.strange(what, odd)
        return rows

    def do(self, what: str, deed: Callable[[Any], object]) -> None:
        """Let the server's client do something that may be repeated without harm; raises as `ask`."""
        self.ask(what, lambda client: [deed(client)])

    def strange(self, what: str, why: str) -> ServiceError:
        """The error for an answer to `what` that does not come from a Rucio server."""
        reason = bounded(why, _MOST_CAUSE_CHARS)
        return ServiceError(
            f"Rucio at {self._access.url} gives an answer of another form ({what}): {reason}; is [rucio] url "
            "that of a Rucio server?"
        )

    def _connected(self) -> Any:
        if self._client is None:
            self._client = _Client(self._access, self._creds)
        return self._client

    def _failed(self, what: str, error: Exception) -> ServiceError:
        where, cause = f"Rucio at {self._access.url}", self._one_line(error)
        if _may_pass(error):
            tries = f"after {self._access.attempts} tries"
            remedy = "is it up, and is [rucio] url right?"
            return ServiceError(f"{where} does not answer ({what}), {tries}: {cause}; {remedy}")
        if isinstance(error, _REFUSED):
            who = f"account {self._access.account or '(of the identity)'} by {self._access.auth_type}"
            return ServiceError(
                f"{where} refuses {who} ({what}): {cause}; check [rucio] account, auth_type and what it needs"
            )
        kind = NamesRefused if isinstance(error, rucio.InvalidObject) else ServiceError
        return kind(f"{where} cannot do this ({what}): {cause}")

    def _one_line(self, error: BaseException) -> str:
        """An error in one line, bounded: some hold the whole question, some what we logged in by."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        token = str(getattr(self._client, "auth_token", None) or "")
        bearer = os.environ.get("BEARER_TOKEN", "")
        return bounded(without_secrets(text, self._access.password, token, bearer), _MOST_CAUSE_CHARS)


class _Client(Client):  # type: ignore[misc]
    """The client of rucio-clients, by our settings alone."""

    def __init__(self, access: RucioAccess, creds: dict[str, str]) -> None:
        # rucio-clients distinguishes tokens by account, not by server: one server would get the other's.
        server = hashlib.sha256(f"{access.url} {access.auth_url}".encode()).hexdigest()[:16]
        self.TOKEN_PATH_PREFIX = f"{access.tokens}/{server}-"
        # With an empty X509_CERT_DIR rucio-clients would check no certificate of a server.
        checks_none = not os.environ.get("X509_CERT_DIR", "unset").strip()
        super().__init__(
            rucio_host=access.url,
            auth_host=access.auth_url or access.url,
            account=access.account or None,
            auth_type=access.auth_type,
            creds=creds,
            ca_cert=access.ca_cert or (True if checks_none else None),
            vo=access.vo or None,
            timeout=access.timeout_s,
            user_agent="cachecast",
            logger=_SILENT,
        )

    def _send_request(self, *args: Any, **options: Any) -> Any:
        # On an expired bearer token rucio-clients would open a dialogue; a person's or a daemon's next run
        # finds the new token.
        if self.auth_type == "oidc":
            options["get_token"] = True
        deadline.bounded(self.session)
        self.session.auth = lambda request: request  # a login in .netrc is none of Rucio's …
        self.session.rebuild_auth = lambda *_: None  # … where it redirects, too
        self.session.get_redirect_target = self._redirected
        return super()._send_request(*args, **options)

    def _redirected(self, response: requests.Response) -> str | None:
        """Where an answer leads; Rucio leads from `whoami` to the account. Another server gets no token."""
        target = requests.Session.get_redirect_target(self.session, response)
        if target is None or _origin(urljoin(response.url, target)) == _origin(response.url):
            return target
        response.close()
        raise requests.TooManyRedirects("it leads to another server, which would get the token or password")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _odd_field(row: object, form: Form) -> str:
    """What keeps `row` from being of `form`; empty if nothing does."""
    if not form:
        return ""
    if not isinstance(row, Mapping):
        return f"a row is {type(row).__name__}, not an object"
    for name, kinds in form.items():
        if name not in row:
            return f"a row has no {name}"
        if not isinstance(row[name], kinds):
            allowed = " or ".join(kind.__name__ for kind in kinds)
            return f"{name} is {type(row[name]).__name__}, not {allowed}"
    return ""


def _credentials(access: RucioAccess) -> dict[str, str]:
    """What the client needs to log in. Raises ConfigError naming the setting that is missing."""
    match access.auth_type:
        case "userpass":
            return _needed(access, "username", "password")
        case "x509":
            return _needed(access, "client_cert", "client_key")
        case "x509_proxy":
            proxy = access.client_proxy or os.environ.get("X509_USER_PROXY")
            if not proxy:
                raise ConfigError(
                    "rucio.client_proxy",
                    "x509_proxy needs a proxy: set it, or X509_USER_PROXY; `voms-proxy-info -path` prints it",
                )
            return {"client_proxy": _readable("client_proxy", proxy)}
        case "oidc":
            if not wlcg_token_discovery():
                raise ConfigError(
                    "rucio.auth_type", "oidc needs a token: set BEARER_TOKEN or BEARER_TOKEN_FILE"
                )
            return {}
    raise ConfigError("rucio.auth_type", f"{access.auth_type!r} is none of userpass, x509, x509_proxy, oidc")


def _needed(access: RucioAccess, *names: str) -> dict[str, str]:
    for name in names:
        if not getattr(access, name):
            where = "set CACHECAST_RUCIO__PASSWORD" if name == "password" else "set it"
            raise ConfigError(
                f"rucio.{name}", f"is empty, and auth_type {access.auth_type} needs it; {where}"
            )
    values = {name: str(getattr(access, name)) for name in names}
    return {name: _readable(name, v) if name.startswith("client_") else v for name, v in values.items()}


def _readable(name: str, path: str) -> str:
    if not os.access(path, os.R_OK):
        raise ConfigError(f"rucio.{name}", f"there is no file {path} that may be read")
    return path


def _may_pass(error: BaseException) -> bool:
    if type(error) is rucio.RucioException:
        return bool(_MAY_PASS.search(str(error)))
    return isinstance(error, _PASSING)


Row = dict[str, Any]
Question = Callable[[list[dict[str, str]], Any], Iterable[Row]]

DID = {"scope": (str,), "name": (str,)}
"""The form of a row that names a DID."""

# The server refuses more.
DIDS_AT_ONCE = 1000


def ask(
    session: Session, what: str, dids: Iterable[Did], question: Question, form: Form
) -> tuple[list[Row], list[Did]]:
    """All rows of the answers to `question`, asked for pages of `dids`; and the names that were refused.

    A server refuses a whole page for one name that breaks its rules: such a page is halved until that name is
    alone. Raises ServiceError.
    """
    rows: list[Row] = []
    refused: list[Did] = []
    left = list(pages(dids, DIDS_AT_ONCE))[::-1]
    while left:
        page = left.pop()
        try:
            rows += session.ask(what, partial(question, [did._asdict() for did in page]), form=form)
        except NamesRefused:
            half = len(page) // 2
            if half:
                left += [page[half:], page[:half]]
            else:
                refused += page
    return rows, refused


def metadata(session: Session, dids: Iterable[Did], form: Form = DID) -> tuple[list[Row], list[Did]]:
    """Metadata of those `dids` that the server knows, and those that it refuses as names. See `ask`."""
    return ask(session, "metadata", dids, lambda names, client: client.get_metadata_bulk(names), form)


def replicas(session: Session, dids: Iterable[Did], rses: str = "") -> Iterator[tuple[Did, list[str]]]:
    """The RSEs where each of `dids` is available, of those in expression `rses` (empty: all)."""
    rows, _ = ask(
        session,
        "replicas",
        dids,
        # The default sort makes the server download a geographic database.
        lambda names, client: client.list_replicas(names, sort="random", rse_expression=rses or None),
        DID | {"states": (dict,)},
    )
    for row in rows:
        yield did_of(row), [rse for rse, state in row["states"].items() if state == "AVAILABLE"]


def did_of(row: Row) -> Did:
    return Did(row["scope"], row["name"])
