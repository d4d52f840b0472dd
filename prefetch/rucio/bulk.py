"""Questions about many DIDs at once, in the pages that a server takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from features.common.arrays import pages
from prefetch.rucio.dids import Did
from prefetch.rucio.session import Form, NamesRefused, Session

Row = dict[str, Any]
Question = Callable[[Any, list[dict[str, str]]], Iterable[Row]]

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
    answers = [_ask(session, what, page, question, form) for page in pages(dids, DIDS_AT_ONCE)]
    return [row for rows, _ in answers for row in rows], [did for _, refused in answers for did in refused]


def _ask(
    session: Session, what: str, page: Sequence[Did], question: Question, form: Form
) -> tuple[list[Row], list[Did]]:
    asked = [did._asdict() for did in page]
    try:
        return session.ask(what, lambda client: question(client, asked), form=form), []
    except NamesRefused:
        if len(page) == 1:
            return [], [*page]
    half = len(page) // 2
    first, second = (_ask(session, what, part, question, form) for part in (page[:half], page[half:]))
    return first[0] + second[0], first[1] + second[1]


def metadata(session: Session, dids: Iterable[Did], form: Form = DID) -> tuple[list[Row], list[Did]]:
    """Metadata of those `dids` that the server knows, and those that it refuses as names. See `ask`."""
    return ask(session, "metadata", dids, lambda client, asked: client.get_metadata_bulk(asked), form)


def replicas(session: Session, dids: Iterable[Did], rses: str = "") -> Iterator[tuple[Did, list[str]]]:
    """The RSEs where each of `dids` is available, of those in expression `rses` (empty: all)."""
    rows, _ = ask(
        session,
        "replicas",
        dids,
        # The default sort makes the server download a geographic database.
        lambda client, asked: client.list_replicas(asked, sort="random", rse_expression=rses or None),
        DID | {"states": (dict,)},
    )
    for row in rows:
        yield did_of(row), [rse for rse, state in row["states"].items() if state == "AVAILABLE"]


def did_of(row: Row) -> Did:
    """The DID of a row."""
    return Did(row["scope"], row["name"])
