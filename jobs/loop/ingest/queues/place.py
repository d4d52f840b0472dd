"""What readers of brokers' answers share: the sites that are ours, times, lists, and names of data."""

from __future__ import annotations

import dataclasses
import datetime as dt
import fnmatch
import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from features.common.errors import InputError
from features.common.times import as_of_label, parse_as_of
from jobs.ground.settings.tree import Settings

CROWDED = "too many: more than "  # begins why what would leave others no room is refused
_MOST_SKEW_S = 300  # a broker's clock may be ahead of ours by so much
_LATEST_S = 2**37  # later is as absurd, and may be beyond the last that has a name: in 9999
_MOST_SITES = 1000
_SAMPLED = (
    *("clusterid", "procid", "jobstatus", "jobuniverse", "desired_cmsdataset", "pandaid", "jeditaskid"),
    *("status", "computingsite", "proddblock", "requestname", "requeststatus", "inputdataset"),
    *("sitewhitelist", "id", "rule_id", "scope", "name", "state", "rse", "rse_expression", "created_at"),
    *("event_type", "request_type", "dest_rse", "routedfromjobid", "description"),
)
_NO_MOMENT = ("", "null", "none", "undefined")


class Refused(NamedTuple):
    """What a reader of a broker's answer refuses, and why."""

    reason: str
    raw: object

    @property
    def sample(self) -> object:
        """What of it may be kept: a job's ad holds its owner, environment and arguments."""
        if not isinstance(self.raw, Mapping):
            return f"{type(self.raw).__name__} of {len(str(self.raw))} characters"
        return {name: value for name, value in self.raw.items() if str(name).lower() in _SAMPLED}


@dataclasses.dataclass(frozen=True)
class Place:
    """`sites`: patterns of what brokers call each site of ours; without any, every site is taken.

    `site`: of entries that name none; `rses`: of caches, whose rules are our own; `salt`: hashes users, of an
    installation without one by a salt of this answer alone, as a bare hash could be looked up.
    """

    as_of_s: int
    sites: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    site: str | None = None
    rses: tuple[str, ...] = ()
    salt: str = ""

    @classmethod
    def of(cls, settings: Settings, as_of_s: int, site: str | None) -> Place:
        """The place of an installation: the sites of its caches, and those of `[queue] sites`."""
        named = {cache.at_site: () for cache in settings.caches.values()} | dict(settings.queue.sites)
        sites = {ours: (ours, *patterns) for ours, patterns in named.items()}
        salt = settings.users.salt.get_secret_value() or secrets.token_hex()
        return cls(as_of_s, sites, site, settings.cache_rses, salt)

    def spread(
        self, entry: Mapping[str, object], names: Sequence[str], raw: object, *, needs_site: bool = True
    ) -> Iterator[object]:
        """`entry` at each site of ours among `names`; one of n sites gets its share of the certainty.

        Without `names` it is of `site`; `needs_site`: without that either it is refused.
        """
        if not names:
            if needs_site and self.site is None:
                yield Refused("names no site; give --site", raw)
            else:
                yield entry
            return
        if len(names) > _MOST_SITES:
            yield Refused(f"names more than {_MOST_SITES} sites", raw)
            return
        n_named: dict[str, int] = {}
        for name in names:
            for ours in self._ours(name):
                n_named[ours] = n_named.get(ours, 0) + 1
        if not n_named:
            yield Refused("for other sites", raw)
        certainty = entry.get("certainty")
        sure = certainty if isinstance(certainty, float) else 1.0
        for ours, n in sorted(n_named.items()):
            shared = {} if n >= len(names) else {"certainty": sure * (n / len(names))}
            yield dict(entry) | {"site": ours} | shared

    def _ours(self, name: str, ending: str = "") -> list[str]:
        if not self.sites:
            return [name]
        return [
            ours
            for ours, patterns in self.sites.items()
            if any(fnmatch.fnmatchcase(name, pattern + ending) for pattern in patterns)
        ]

    def concerns(self, rse: str) -> bool:
        return bool(self._ours(self.site_of(rse)))

    def site_of(self, rse: str) -> str:
        """`rse`, or the site of ours as whose kind of storage it is called (`T2_DE_EDGE_Disk`)."""
        return rse if self._ours(rse) else next(iter(self._ours(rse, "[_-]*")), rse)

    def hashed(self, name: str) -> str:
        """What stands for a name that holds a user's, as `sql.hashed_user` has it."""
        return hashlib.sha256(f"{self.salt}\x1f{name}".encode()).hexdigest()[:16]

    def known(self, moment_s: int | None) -> dict[str, str]:
        """`known_at` of an entry made at `moment_s`; a broker's clock may be a little ahead."""
        if moment_s is None or self.as_of_s <= moment_s <= self.as_of_s + _MOST_SKEW_S:
            return {}
        return {"known_at": as_of_label(moment_s)}

    def starting(self, moment_s: int | None) -> dict[str, str]:
        """`expected_start` of an entry that is to start at `moment_s`, if that is ahead."""
        if moment_s is None or moment_s <= self.as_of_s:
            return {}
        return {"expected_start": as_of_label(moment_s)}


def moment_of(value: object) -> int | None:
    """Seconds since 1970 of a broker's time: a number, ISO 8601 or as in mails; None for no time."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return int(value) if 0 < value < 2**32 else None
    if not isinstance(value, str) or value.strip().lower() in _NO_MOMENT:
        return None
    try:
        return parse_as_of(value.strip())
    except InputError:
        pass
    try:
        mailed = parsedate_to_datetime(value)
        moment_s = int((mailed if mailed.tzinfo else mailed.replace(tzinfo=dt.UTC)).timestamp())
        return min(moment_s, _LATEST_S)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def texts(value: object, separator: str = ",") -> list[str]:
    """The names in a list, or in a text that separates them; each once, in order."""
    parts = value.split(separator) if isinstance(value, str) else value if isinstance(value, list) else []
    named = [part.strip() for part in parts if isinstance(part, str)]
    return list(dict.fromkeys(name for name in named if name.lower() not in _NO_MOMENT))


def folded(raw: object) -> dict[str, object] | None:
    """The fields of an object with their names in lower case, or None for no object."""
    if not isinstance(raw, Mapping):
        return None
    return {name.lower(): value for name, value in raw.items() if isinstance(name, str)}


_URL = re.compile(
    r"\b(?:x?roots?|https?|davs?|osdf|pelican|stash|gsiftp|srm|rucio)://"
    r"""[^\s"',;/\\\]\[<>]*(?:;[^\s"'/\\\]\[<>]*)?/[^\s"',;\\\]\[<>]+"""
)
_LFN = re.compile(r"""(?<![\w/.:-])/store/[^\s"',;\\\]\[<>]+""")
_DID = re.compile(r"(?<![\w/.:-])[A-Za-z][\w.-]*:[\w][\w.+-]*\.root(?:\.\d+)?(?![\w/])")
_WEB = ("http", "dav")
_BY_RUCIO = re.compile(r"\Arucio://[^/]+/replicas/([^/]+)/([^/]+)\Z")


def named(stated: Iterable[str], *, is_framework: bool = False) -> tuple[str, ...]:
    """LFNs, DIDs and URLs of data in `stated`, each once; of a framework, whose URLs are code, LFNs alone."""
    names: dict[str, None] = {}
    for text in stated:
        plain = () if is_framework else map(_without_options, _URL.findall(text))
        urls = (_BY_RUCIO.sub(r"\1:\2", url) for url in plain)  # of one that asks Rucio, the DID
        names |= dict.fromkeys(url for url in urls if not url.startswith(_WEB) or is_data(url))
        bare = _URL.sub(" ", text)
        names |= dict.fromkeys((*_LFN.findall(bare), *(() if is_framework else _DID.findall(bare))))
    return tuple(names)


def _without_options(url: str) -> str:
    """`url` without what ARC writes into it: `;name=value` after the host, `:name=value` at the end."""
    above, slash, last = url.rpartition("/")
    return re.sub("(?<=[^/]);[^/]*(?=/)", "", above + slash) + re.sub(":[a-z]+=.*", "", last)


def is_data(url: str) -> bool:
    """Whether a name is a file of data, by its path."""
    path = url.partition("?")[0]
    return "/store/" in path or path.endswith(".root")
