"""New rules of the configured Rucio server, with the RSEs that their expressions mean there."""

import datetime as dt
import re
from email.utils import format_datetime
from typing import Any

from rucio.common.exception import InvalidRSEExpression, RSENotFound

from jobs.loop.ingest.queues.rucio import NEW_S, RSES, TAPE
from prefetch.rucio.session import DID, Row, Session

MOST_EXPRESSIONS = 1000  # asked about, one by one: any user may make more; others are refused
_RULE = DID | {"id": (str,), "rse_expression": (str,)}
_RSE = {"rse": (str,)}


def asked(session: Session, as_of_s: int) -> list[object]:
    """The rules that are new at `as_of_s`, as the server would write them in JSON. Raises ServiceError."""
    since = dt.datetime.fromtimestamp(as_of_s - NEW_S, dt.UTC)
    # The server knows this form of a time alone.
    filters = {"created_after": format_datetime(since).replace("+0000", "UTC")}
    rules = session.ask("rules", lambda client: client.list_replication_rules(filters), form=_RULE)
    expressions = {rule["rse_expression"] for rule in rules if not re.fullmatch(RSES, rule["rse_expression"])}
    rses_of = {
        expression: _rses(session, expression) for expression in sorted(expressions)[:MOST_EXPRESSIONS]
    }
    for rule in rules:
        rule["rse_expression"] = rses_of.get(rule["rse_expression"]) or rule["rse_expression"]
    return [
        {name: v.isoformat() if isinstance(v, dt.datetime) else v for name, v in rule.items()}
        for rule in rules
    ]


def _rses(session: Session, expression: str) -> str:
    """The RSEs that an expression means, but for tapes beside others; empty if it is none."""

    def question(client: Any) -> list[Row]:
        try:
            return list(client.list_rses(rse_expression=expression))
        except (InvalidRSEExpression, RSENotFound):
            return []

    names = sorted(row["rse"] for row in session.ask("RSEs", question, form=_RSE))
    return "|".join([name for name in names if not TAPE.search(name)] or names)
