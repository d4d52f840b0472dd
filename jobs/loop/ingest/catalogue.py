"""The configured Rucio server, and a pull of the files of datasets, listed or in use."""

import datetime as dt
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ConfigError, InputError
from features.common.files import user_cache
from features.schema import ACCESSES, FILES
from jobs.ground.settings.sources import IN_USE, RucioSettings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import local_engine
from jobs.loop.ingest.pull_input import PullSummary, Request
from jobs.loop.ingest.sources import Site, lines, remote, rucio_catalogue, rucio_files, workspace
from jobs.loop.ingest.sources.local import files_at, is_local
from prefetch.rucio.session import RucioAccess, Session

_NAME = "rucio_server"
_COMMENT = "#"


def session(rucio: RucioSettings) -> Session:
    """A session with the configured server. Raises ConfigError if its settings are missing or incomplete."""
    if not rucio.url:
        raise ConfigError("rucio.url", "no Rucio server is configured; set it to https://rucio.example.org")
    same = ("auth_type", "account", "vo", "ca_cert", "username", "client_cert", "client_key", "client_proxy")
    return Session(
        RucioAccess(
            url=rucio.url.rstrip("/"),
            auth_url=rucio.auth_url.rstrip("/"),
            password=rucio.password.get_secret_value(),
            timeout_s=rucio.timeout,
            attempts=rucio.attempts,
            tokens=user_cache("rucio-tokens"),
            **{name: getattr(rucio, name) for name in same},
        )
    )


def pull(
    tables: Tables, *, session: Session, path: str, day: dt.date, in_use_days: int, scopes: Mapping[str, str]
) -> PullSummary:
    """Merge the files of the datasets at `path` into the files table; `day`: that of rejected rows.

    `path`: a file (or a glob) with one DID or `scope:pattern` per line, or `IN_USE`: the datasets that were
    read in the `in_use_days` up to `day`, by the accesses table; `scopes`: see `Site`. Raises InputError if
    it names none, ServiceError (nothing is written then), StaleInputError without accesses, ConflictError.
    """
    datasets = _in_use(tables, day, in_use_days) if path == IN_USE else _listed(path)
    if not datasets:
        raise InputError(
            f"{path} names no dataset; give lines like mc23_13p6TeV:mc23_13p6TeV.1.X.AOD.e1, or in-use"
        )
    site = Site(day=day.isoformat(), scopes=scopes)
    query = rucio_files.query(site, refused="refused")
    with workspace.opened(FILES) as space:
        # Fetched before the lock of pulls is taken, because a large catalogue takes long.
        for rows in rucio_catalogue.rows(session, datasets):
            values = pa.array([rucio_catalogue.line(row, site.day) for row in rows], pa.string())
            inputs = pa.repeat(pa.scalar(path), len(values))  # who named them
            space.take(query, [pa.record_batch({"value": values, "input": inputs})])
        with tables.exclusive():
            return local_engine.merge(space, tables, Request(_NAME, path, site))


def _in_use(tables: Tables, day: dt.date, days: int) -> list[str]:
    snapshot, since = tables.snapshot(ACCESSES), day - dt.timedelta(days=days)
    each = (key[0] for key in snapshot.select(since=since.isoformat(), until=day.isoformat()))
    columns = [pc.unique(snapshot.rows(["dataset"], since=label, until=label)["dataset"]) for label in each]
    names = pa.chunked_array(columns, pa.string()).drop_null()
    return [str(name) for name in pc.unique(names).sort().to_pylist()]


def _listed(path: str) -> list[str]:
    files = files_at(path) if is_local(path) else remote.files_at(path)
    batches = lines.batches(map(lines.Piece, files), lines.fail)
    names = (line.strip(" ") for batch in batches for line in batch["value"].to_pylist())
    return list(dict.fromkeys(name for name in names if name and not name.startswith(_COMMENT)))
