"""URLs and paths of files, taken apart and made plain, so that a file has one name whatever named it.

And what names of files tell, as columns: DID, scope, dataset, tier, campaign and experiment.

Of the forward-proxy form, `root://cache:1094//root://origin:1094//store/f.root`, a cache's own records hold
the second half as a path, `/root:/origin:1094//store/f.root`; a user before the host is dropped. Expressions
of DuckDB, as in `jobs.loop.ingest.sources.sql`.
"""

import re
from collections.abc import Mapping

from features.common.names import CMS_LFN, LHCB_LFN, literal, name_parts, part

_USER = "(?:[^/@]*@)?"
_SERVER = f"(?:xroots?|roots?|https?|davs?):/+{_USER}"
_FIRST = f"^/*{_SERVER}([^/@]+)/"
_SECOND = f"^/*{_SERVER}[^/@]+/+{_SERVER}([^/@]+)/"
_SERVERS = f"^(?:/*{_SERVER}[^/@]+){{1,2}}/+"
_SCHEME = "^/*(?:file:(?://localhost/)?/*|[A-Za-z][A-Za-z0-9+.-]*://[^/]*/+)"
"""What comes before the path in URLs of other schemes, and in `file:/store`."""
_CGI_BEGINS = "[?]|%3[Ff]|(?:&|%26)(?:authz|access_token)(?:=|%3[Dd])"
_CGI = f"(?s)(?:#|{_CGI_BEGINS}).*$"
_PRIVATE = (
    '(?:(?:[?&]|%3[Ff])[A-Za-z0-9_.-]+(?:=|%3[Dd])|[Bb]earer )[^\\t\\n\\r",\\]]*'
    "|eyJ[A-Za-z0-9_-]{8,}(?:[.][A-Za-z0-9_-]*){0,2}"
)
_SIX = "((?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|[0-9A-Fa-f:]*::[0-9A-Fa-f:.]*)"
_LOOPBACK = r"(?i)(?:localhost[^:]*|127[.][0-9.]+|\[::(?:1|(?:ffff:)?127[.][0-9.]+)\])(?::[0-9]*)?"
_OF_URLS = (":", "?", "#", "&", "%")
_REPEATED = ("//", "./")
_CMS_DOOR = "^(?:/eos/(?:us)?cms)?(?:/store/test/xrootd/[^/]+)?/store/"
_LHCB_DOOR = f"(?s)^/(?:eos/lhcb/grid/(?:prod|user)(/lhcb/.+)|.*({LHCB_LFN}))$"
_OF_PEOPLE = "^/(?:afs|home|tmp|users?|eos/(?:home|user)[^/]*)/"  # people keep copies: files of their own


def with_hosts(url: str) -> list[dict[str, str]]:
    """Steps that add `first_host` and `origin_host` of column `url`."""
    return [
        {"first_server": _found(url, _FIRST), "origin_host": origin_host(url)},
        {"first_host": server("first_server")},
    ]


def first_host(url: str) -> str:
    """host:port that `url` names first; null for a plain path."""
    return _in_one_form(_found(url, _FIRST))


def cache_host(url: str) -> str:
    """host:port of the cache that `url` goes through; null if it names one server or none."""
    return f"CASE WHEN {_found(url, _SECOND)} IS NOT NULL THEN {first_host(url)} END"


def origin_host(url: str) -> str:
    """host:port behind the cache that `url` goes through; null if it names one server or none."""
    return f"CASE WHEN {url} LIKE '%:/%:/%' THEN {_in_one_form(_found(url, _SECOND))} END"


def source_host(url: str) -> str:
    """host:port that the file comes from: behind the cache, or the only one; null for a plain path."""
    return f"coalesce({origin_host(url)}, {first_host(url)})"


def server(host: str) -> str:
    """Column `host`, with its port if it has one, in one form: IPv6 in brackets; null for a loopback address.

    Few have another form, so it is cheap.
    """
    may_be_loopback = " OR ".join(f"starts_with({host}, '{begin}')" for begin in ("127.", "[", "l", "L"))
    is_odd = f"{host} LIKE '%:%:%' OR {may_be_loopback} OR {host} = ''"
    return f"CASE WHEN {is_odd} THEN {_in_one_form(host)} ELSE {host} END"


def _in_one_form(host: str) -> str:
    once = f"regexp_replace({host}, '^{_SIX}(:[0-9]+)?$', '[\\1]\\2')"
    return f"nullif(regexp_replace({once}, '^{_LOOPBACK}$', ''), '')"


def host_name(host: str) -> str:
    """The same of a host without a port, as a plain address."""
    return f"regexp_replace({_in_one_form(host)}, '^\\[(.*)\\]$', '\\1')"


def plain_path(url: str) -> str:
    """`/store/f.root` of a path at a server, or of a URL of any form; with a slash at the beginning.

    Without server, CGI, doubled slashes, and a door's prefix before an LFN of CMS or LHCb but a person's.
    """
    is_odd = f"NOT starts_with({url}, '/') OR {_holds(url, *_OF_URLS, *_REPEATED)}"
    is_behind_a_door = (
        f"CASE WHEN starts_with({url}, '/store/') THEN starts_with({url}, '/store/test/xrootd/') "
        f"ELSE contains({url}, '/store/') OR contains({url}, '/lhcb/') END"
    )
    path = f"list_transform([{_path(url)}], lambda p: {_through_doors()})[1]"
    return f"CASE WHEN {is_odd} OR {is_behind_a_door} THEN {path} ELSE {url} END"


def _path(url: str) -> str:
    """The path of `url`, each slash once; `/` if there is none."""
    sfn = f"regexp_replace({url}, '^srm://.*[?]SFN=', '')"
    bare = f"regexp_replace({sfn}, '{_CGI}', '')"
    is_coded = f"contains({url}, '%') AND regexp_matches({url}, '^/*(?:https?|davs?):')"
    once_more = f"regexp_replace(url_decode({bare}), '{_CGI}', '')"
    decoded = f"CASE WHEN {is_coded} THEN {once_more} ELSE {bare} END"
    path = f"regexp_replace(regexp_replace({decoded}, '{_SERVERS}', '/'), '{_SCHEME}', '/')"
    once = f"regexp_replace('/' || {path}, '(?:/+[.])*/+', '/', 'g')"
    is_rooted = f"starts_with({url}, '/')"
    is_odd = _holds(url, *_OF_URLS, *_REPEATED)
    return f"CASE WHEN {is_odd} THEN {once} WHEN {is_rooted} THEN {url} ELSE '/' || {url} END"


def _through_doors() -> str:
    """The path `p` without the prefix of a door."""
    lfn = "substr(p, strpos(p, '/store/'))"
    cases = {
        f"regexp_matches(p, '{_CMS_DOOR}')": f"regexp_replace(p, '{_CMS_DOOR}', '/store/')",
        "starts_with(p, '/store/')": "p",
        f"regexp_matches(p, '{_OF_PEOPLE}')": "p",
        f"contains(p, '/store/') AND regexp_matches({lfn}, '{CMS_LFN}')": lfn,
        "contains(p, '/lhcb/')": f"regexp_replace(p, '{_LHCB_DOOR}', '\\1\\2')",
    }
    return f"CASE {' '.join(f'WHEN {check} THEN {path}' for check, path in cases.items())} ELSE p END"


def _holds(text: str, *marks: str) -> str:
    return "(" + " OR ".join(f"contains({text}, '{mark}')" for mark in marks) + ")"


def without_cgi(name: str) -> str:
    """`name` without CGI, which may hold a token."""
    is_odd = _holds(name, *_OF_URLS[1:])
    return f"CASE WHEN {is_odd} THEN regexp_replace({name}, '{_CGI}', '') ELSE {name} END"


def without_secrets(line: str) -> str:
    """A raw record, as a sample of it may be kept: CGI and tokens are blotted out."""
    return f"regexp_replace({line}, '{_PRIVATE}', '*', 'g')"


def bare(name: str) -> str:
    """`without_cgi` of a name that Python has; of what SRM is asked for the CGI behind its path alone."""
    service, asked, path = name.rpartition("?SFN=")
    return service + asked + re.sub(f"(?s)(?:{_CGI_BEGINS}).*", "", path)


def blotted(record: str) -> str:
    """`without_secrets` of a record that Python has."""
    return re.sub(_PRIVATE, "*", record)


def _found(url: str, pattern: str) -> str:
    """Group 1 of `pattern`. Without the user it is found in one pass, many times faster."""
    any_form, without_user = (
        f"regexp_extract({url}, '{form}', 1)" for form in (pattern, pattern.replace(_USER, ""))
    )
    return f"nullif(CASE WHEN contains({url}, '@') THEN {any_form} ELSE {without_user} END, '')"


ATLAS_SCOPE = "^(data|mc|valid|hi)[0-9]{1,2}_"
EXPERIMENTS = ("cms", "atlas", "lhcb", "osdf")
UNKNOWN = "unknown"  # the scope of a file of which neither its name nor a record tells one
GUESSED = (UNKNOWN, *EXPERIMENTS[1:])  # they stand for an experiment, and are not Rucio's; CMS's is
_HASHED = "^(.*)/([0-9a-f]{2})/([0-9a-f]{2})/([^/]+)$"
"""Rucio's own place for a file below a prefix: its scope, four digits of the MD5 of its DID, and its name."""
_SCOPE = "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"  # else two files would have one DID, and a name lead elsewhere
_OF_PERSON = "^.*/((?:user|group)[^/]*/.+)$"  # such scopes have a folder a part


def with_parts(name: str, scope: str | None = None) -> list[dict[str, str]]:
    """Steps that add what column `name`, a plain path, tells of a file; or its name in `scope`.

    A path where Rucio's `hash` naming puts a file is that file: the digits in it prove that.
    """
    scope_of, hashed, path = (_of(name, what) for what in ("scope", "hashed", "path"))
    by_person = f"regexp_extract({hashed}.above, '{_OF_PERSON}', 1)"
    scopes = (
        f"nullif(replace({by_person}, '/', '.'), '')",
        f"nullif(split_part({hashed}.above, '/', -1), '')",
    )
    proven = " ".join(
        f"WHEN left(md5({candidate} || ':' || {hashed}.file), 4) = {hashed}.one || {hashed}.two "
        f"AND regexp_matches({candidate}, '{_SCOPE}') AND {hashed}.file NOT IN ('.', '..') THEN {candidate}"
        for candidate in scopes
    )
    may_be = f"NOT starts_with({path}, '/store/') AND regexp_matches({path}, '/[0-9a-f]{{2}}/[0-9a-f]{{2}}/')"
    taken = f"regexp_extract({path}, '{_HASHED}', ['above', 'one', 'two', 'file'])"
    is_atlas = f"regexp_matches({scope_of}, {literal(ATLAS_SCOPE)})"
    file = _of(name, "file")
    return [
        {path: name if scope is None else plain(name)},
        {hashed: f"CASE WHEN {may_be} THEN {taken} END"},
        {"proven": f"CASE {proven} END"},
        {
            scope_of: f"coalesce(proven, {scope or 'NULL'})",
            file: f"CASE WHEN proven IS NOT NULL THEN {hashed}.file ELSE {path} END",
        },
        {"full_name": f"CASE WHEN {is_atlas} THEN {scope_of} || ':' || {file} ELSE {file} END"},
        {"parts": name_parts("full_name")},
    ]


def plain(name: str) -> str:
    """`name` without CGI; what begins as a path, or is a URL, as the plain path."""
    begins = " OR ".join(f"starts_with({name}, '{begin}')" for begin in ("/", "store/", "lhcb/"))
    is_path = f"{begins} OR contains({name}, '/store/') OR contains({name}, '://')"
    return f"CASE WHEN {is_path} THEN {plain_path(name)} ELSE {without_cgi(name)} END"


def named(name: str, scope: str | None = None) -> dict[str, str]:
    """Columns did, scope, name, dataset, tier, campaign, experiment of `name`, after the steps `with_parts`.

    Without `scope` it is the experiment, or `unknown`; an LFN of CMS is in scope cms in any case.
    """
    experiment, stated, file = part("parts", "experiment"), _of(name, "scope"), _of(name, "file")
    owner = f"coalesce({stated}, {experiment}, '{UNKNOWN}')"
    if scope is not None:
        owner = (
            f"CASE WHEN {experiment} = 'cms' AND starts_with({file}, '/store/') THEN 'cms' ELSE {stated} END"
        )
    return {
        "did": f"{owner} || ':' || {file}",
        "scope": owner,
        "name": file,
        "dataset": f"{owner} || ':' || {part('parts', 'dataset')}",
        "tier": part("parts", "tier"),
        "campaign": part("parts", "campaign"),
        "experiment": f"coalesce({experiment}, CASE WHEN {stated} IN {EXPERIMENTS} THEN {stated} END)",
    }


def scoped(columns: Mapping[str, str], scopes: Mapping[str, str]) -> dict[str, str]:
    """`columns` of `named`, with the scope that `scopes` has for the longest beginning of the path.

    It counts where a file is else called by its experiment; the names of CMS are its own.
    """
    if not scopes or "scope" not in columns:
        return dict(columns)
    name, guessed = columns["name"], columns["scope"]
    longest_first = sorted(scopes.items(), key=lambda item: (-len(item[0]), item))
    cases = " ".join(
        f"WHEN starts_with({name}, {literal(f'{path}/')}) THEN {literal(scope)}"
        for path, scope in longest_first
    )
    scope = f"CASE WHEN {guessed} NOT IN {GUESSED} THEN {guessed} {cases} ELSE {guessed} END"
    return {**columns, "scope": scope, "did": f"{scope} || ':' || {name}"}


def _of(name: str, what: str) -> str:
    """A column of `with_parts` about column `name`."""
    return f"{what}_of_{name.strip(chr(34))}"
