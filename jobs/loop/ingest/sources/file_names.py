"""What names of files tell, as columns: DID, scope, dataset, tier, campaign and experiment.

Expressions of DuckDB, as in `jobs.loop.ingest.sources.sql`, by which they are used.
"""

from __future__ import annotations

from collections.abc import Mapping

from features.common.names import literal, name_parts, part
from jobs.loop.ingest.sources import urls

ATLAS_SCOPE = "^(data|mc|valid|hi)[0-9]{1,2}_"
EXPERIMENTS = ("cms", "atlas", "lhcb", "osdf")
UNKNOWN = "unknown"
"""The scope of a file of which neither its name nor a record tells one."""
GUESSED = (UNKNOWN, *EXPERIMENTS[1:])
"""Scopes that stand for an experiment, and are not Rucio's; that of CMS is."""
_HASHED = "^(.*)/([0-9a-f]{2})/([0-9a-f]{2})/([^/]+)$"
"""Rucio's own place for a file below a prefix: its scope, four digits of the MD5 of its DID, and its name."""
_SCOPE = "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"
"""Else two files would have one DID, and a name lead elsewhere."""
_OF_PERSON = "^.*/((?:user|group)[^/]*/.+)$"
"""Such scopes have a folder a part."""


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
    return f"CASE WHEN {is_path} THEN {urls.plain_path(name)} ELSE {urls.without_cgi(name)} END"


def named(name: str, scope: str | None = None) -> dict[str, str]:
    """Columns did, scope, name, dataset, tier, campaign, experiment of a file (or dataset) called `name`.

    Without `scope` it is the experiment, or `unknown`; an LFN of CMS is in scope cms whatever states another.
    Add the columns of `with_parts` before.
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
