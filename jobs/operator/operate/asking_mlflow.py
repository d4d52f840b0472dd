"""Whether MLflow answers, as its own client would ask it, and can read its database."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import sqlite3
import ssl
from pathlib import Path

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from features.common.errors import bounded, without_login
from jobs.operator.operate.asking import OUT_OF_DATE, Check, answers, believing, fetched

_AUTHORITIES = ("MLFLOW_TRACKING_SERVER_CERT_PATH", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables by which MLflow's client knows whom to believe: the first that is set."""


def mlflow(uri: str) -> Check:
    """Whether MLflow answers, and can read its database."""
    if uri.startswith("sqlite:"):
        fault = _schema_fault(uri)
        return Check("mlflow", uri, "bad" if fault else "ok", fault or "a file on this machine")
    address = without_login(uri)  # its health needs no login
    try:
        tls = _tls_to_mlflow() if uri.startswith("https:") else None
    except OSError as error:
        why = "no certificate can be read where MLFLOW_TRACKING_…_CERT_PATH (or …_CA_BUNDLE) says"
        return Check("mlflow", address, "bad", f"{why} ({error.strerror})")
    check = answers("mlflow", address, f"{address.rstrip('/')}/health", tls=tls)
    if check.state == "bad":
        return check
    reply = fetched(f"{address.rstrip('/')}/api/2.0/mlflow/experiments/search?max_results=1", tls=tls)
    # Any other refusal may be for want of a login.
    is_bad = isinstance(reply, str) and OUT_OF_DATE in reply
    return dataclasses.replace(check, state="bad", detail=str(reply)) if is_bad else check


def _tls_to_mlflow() -> ssl.SSLContext:
    """Whom MLflow's own client believes, and how it names itself. Raises OSError."""
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        stated = (path for name in _AUTHORITIES if (path := os.environ.get(name)))
        context = believing(next(stated, DEFAULT_CA_BUNDLE_PATH))
    if own := os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH"):
        context.load_cert_chain(own, password="")  # rather refused than asked for on the terminal
    return context


def _schema_fault(uri: str) -> str | None:
    """Why this MLflow cannot read its database file; None if it can, or will make it."""
    package = importlib.util.find_spec("mlflow")
    if package is None or package.origin is None or importlib.util.find_spec("alembic") is None:
        return None  # a cache's host has no MLflow that would read it
    from alembic.script import ScriptDirectory  # noqa: PLC0415
    from sqlalchemy import make_url  # noqa: PLC0415

    file = Path(str(make_url(uri).database or ""))
    if not file.is_file():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            has_any = database.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
            ).fetchone()
            stated = (
                database.execute("SELECT version_num FROM alembic_version").fetchone() if has_any else None
            )
    except sqlite3.Error as error:
        return bounded(f"cannot be read ({error}); is it a database of MLflow's?", 200)
    # MLflow itself takes seconds to be imported.
    steps = ScriptDirectory(str(Path(package.origin).parent / "store" / "db_migrations"))
    heads, known = steps.get_heads(), {step.revision for step in steps.walk_revisions()}
    if stated is None or [stated[0]] == heads:
        return None
    version, schema = importlib.metadata.version("mlflow"), bounded(str(stated[0]), 40)
    if stated[0] in known:
        older = f"schema {schema} is older than MLflow {version} reads"
        return f"{older}: back it up, then run: mlflow db upgrade {uri}"
    return (
        f"schema {schema} is unknown to MLflow {version}, so a newer one wrote it: install that one here, or "
        "restore the backup made before its upgrade (mlflow db upgrade leads forward only)"
    )
