"""What a Rucio server knows of datasets: their files, where they lie, and when they came to be.

Rows have the fields of a `rucio_files` line; one with `refused` stands for a name that gave no file.
Questions are bulk, of 1000 DIDs at most, as the server takes no more. It is asked once a dataset which RSEs
hold it whole; replicas are listed file by file only of RSEs that hold a part, which is ten times slower.
Rules are those on datasets; of a file outside of datasets it is not known whether a rule keeps it. The server
drops unknown DIDs silently, so what it tells is compared with what was asked.
"""

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from features.common.arrays import pages
from prefetch.lfn import Did
from prefetch.rucio import session as rucio
from prefetch.rucio.session import Row, Session

# Files that are in memory at once, but for the excess of one dataset.
FILES_AT_ONCE = 20_000
# An open dataset does not tell how many files it has.
_GUESSED_FILES = 1000
_META = rucio.DID | {"did_type": (str,), "created_at": (dt.datetime,), "length": (int, NoneType)}
_FILE = rucio.DID | {"parent_scope": (str,), "parent_name": (str,)}


def rows(session: Session, names: Iterable[str]) -> Iterator[list[Row]]:
    """The files of all `names`, in bounded lists; a file of two datasets comes twice.

    `names`: DIDs of datasets, containers or files, or `scope:pattern` with `*`. What is named twice, as by
    its container too, comes once. Raises ServiceError.
    """
    return _Catalogue(session).rows(names)


class _Catalogue:
    """One walk through a server's catalogue: what was seen on it, and which RSEs are caches."""

    def __init__(self, session: Session) -> None:
        self._session = session
        form = {"rse": (str,), "volatile": (bool,)}
        rses = session.ask("list RSEs", lambda client: client.list_rses(), form=form)
        # What a cache holds comes from somewhere else: it is no origin.
        self._caches = {rse["rse"] for rse in rses if rse["volatile"]}
        self._seen: set[Did] = set()

    def rows(self, names: Iterable[str]) -> Iterator[list[Row]]:
        for page in pages(names, rucio.DIDS_AT_ONCE):
            dids, refused = self._named(page)
            while dids:
                known, unknown = self._metadata(dids)
                refused += unknown
                kinds = {kind: [m for m in known if m["did_type"] == kind] for kind in ("DATASET", "FILE")}
                yield from map(self._of_datasets, _batches(kinds["DATASET"]))
                origins: dict[Did, list[str]] = {rucio.did_of(file): [] for file in kinds["FILE"]}
                self._add_replicas(origins, "")
                yield [_row(f, None, f["created_at"], origins[rucio.did_of(f)]) for f in kinds["FILE"]]
                inside = []
                for container in [rucio.did_of(m) for m in known if m["did_type"] == "CONTAINER"]:
                    children = self._session.ask(
                        f"content of {container.scope}:{container.name}",
                        lambda client, it=container: client.list_content(it.scope, it.name),  # type: ignore[misc]
                        form=rucio.DID,
                    )
                    inside += [rucio.did_of(child) for child in children]
                dids = self._new(inside)
            yield refused

    def _named(self, texts: Sequence[str]) -> tuple[list[Did], list[Row]]:
        """The DIDs that `texts` name for the first time, and rows for those that name none."""
        dids: list[Did] = []
        refused = []
        for text in texts:
            scope, _, name = text.partition(":")
            if not (scope and name):
                refused.append(_refused(text, "not a DID, as scope:name"))
            elif "*" not in name:
                dids.append(Did(scope, name))
            elif matching := self._matching(scope, name):
                dids += matching
            else:
                refused.append(_refused(text, "no dataset matches"))
        return self._new(dids), refused

    def _matching(self, scope: str, pattern: str) -> list[Did]:
        filters = [{"name": pattern}]
        names = self._session.ask(
            f"datasets {scope}:{pattern}",
            lambda client: client.list_dids(scope, filters, did_type="collection"),
        )
        if not all(isinstance(name, str) for name in names):
            raise self._session.strange(f"datasets {scope}:{pattern}", "a name is no text")
        return [Did(scope, name) for name in names]

    def _new(self, dids: Iterable[Did]) -> list[Did]:
        new = [did for did in dict.fromkeys(dids) if did not in self._seen]
        self._seen.update(new)
        return new

    def _metadata(self, dids: Sequence[Did]) -> tuple[list[Row], list[Row]]:
        """Metadata of the `dids` that the server knows, and rows for those that it does not."""
        known, refused = rucio.metadata(self._session, dids, _META)
        answered = {*map(rucio.did_of, known), *refused}
        unknown = [(did, "unknown to Rucio") for did in dids if did not in answered]
        unknown += [(did, "a name that Rucio's rules refuse") for did in refused]
        return known, [_refused(f"{did.scope}:{did.name}", reason) for did, reason in unknown]

    def _of_datasets(self, datasets: Sequence[Row]) -> list[Row]:
        asked = [rucio.did_of(meta)._asdict() for meta in datasets]
        listed = self._session.ask("files", lambda client: client.bulk_list_files(asked), form=_FILE)
        by_dataset: dict[Did, list[Row]] = {rucio.did_of(meta): [] for meta in datasets}
        for file in listed:
            parent = Did(file["parent_scope"], file["parent_name"])
            if parent not in by_dataset:
                raise self._session.strange("files", f"of {parent.scope}:{parent.name}, which was not asked")
            by_dataset[parent].append(file)
        known, _ = self._metadata(list(dict.fromkeys(map(rucio.did_of, listed))))
        created = {rucio.did_of(meta): meta["created_at"] for meta in known}
        rules = self._locked(asked)
        locked: dict[Did, set[str]] = {}
        for dataset, files in by_dataset.items():
            for file in files:
                locked.setdefault(rucio.did_of(file), set()).update(rules[dataset])
        rows = []
        for meta in datasets:
            files = by_dataset[rucio.did_of(meta)]
            origins = self._origins(rucio.did_of(meta), files)
            rows += [
                _row(file, meta, created.get(did), origins[did], locked[did])
                for did, file in ((rucio.did_of(file), file) for file in files)
            ]
        return rows

    def _locked(self, datasets: Sequence[Mapping[str, str]]) -> dict[Did, set[str]]:
        """The RSEs at which a rule keeps each of `datasets`."""
        asked = [{**dataset, "type": "dataset"} for dataset in datasets]
        locks = self._session.ask(
            "locks", lambda client: client.get_locks_for_dids(asked), form=rucio.DID | {"rse": (str,)}
        )
        locked: dict[Did, set[str]] = {Did(**dataset): set() for dataset in datasets}
        for lock in locks:
            if rucio.did_of(lock) not in locked:
                raise self._session.strange(
                    "locks", f"of {lock['scope']}:{lock['name']}, which was not asked"
                )
            locked[rucio.did_of(lock)].add(lock["rse"])
        return locked

    def _origins(self, dataset: Did, files: Sequence[Row]) -> dict[Did, list[str]]:
        """The RSEs that hold each file of `dataset`; those of caches are left out."""
        held = self._session.ask(
            f"replicas of {dataset.scope}:{dataset.name}",
            lambda client: client.list_dataset_replicas(dataset.scope, dataset.name, deep=True),
            form={"rse": (str,), "available_length": (int,)},
        )
        n_available = {row["rse"]: row["available_length"] for row in held if row["rse"] not in self._caches}
        whole = [rse for rse, n in n_available.items() if n == len(files)]
        # Of an open dataset an RSE may have more by now.
        parts = sorted(rse for rse, n in n_available.items() if n and n != len(files))
        origins = {rucio.did_of(file): list(whole) for file in files}
        if parts:
            self._add_replicas(origins, "|".join(parts))
        return origins

    def _add_replicas(self, origins: dict[Did, list[str]], rses: str) -> None:
        """Add to `origins` where else each file is available, of RSEs in expression `rses` (empty: all)."""
        for did, at in rucio.replicas(self._session, list(origins), rses):
            if did not in origins:
                raise self._session.strange("replicas", f"of {did.scope}:{did.name}, which was not asked")
            origins[did] += [rse for rse in at if rse not in self._caches]


def _row(
    file: Mapping[str, Any],
    dataset: Row | None,
    created: dt.datetime | None,
    origins: list[str],
    locked: set[str] | None = None,
) -> Row:
    if created is None:
        return _refused(f"{file['scope']}:{file['name']}", "gone while it was asked for")
    row = {field: file.get(field) for field in ("scope", "name", "bytes", "adler32")}
    row |= {"created_at": _utc(created), "known_at": _utc(created), "rses": sorted(origins)}
    row |= {"locked": None if locked is None else sorted(locked & set(origins))}
    if dataset is not None:
        # Rucio listed the file in this dataset from when both were there.
        row |= {"parent_scope": dataset["scope"], "parent_name": dataset["name"]}
        row |= {"known_at": _utc(max(created, dataset["created_at"]))}
        row |= {field: dataset.get(field) for field in ("datatype", "campaign")}
    return row


def _refused(did: str, reason: str) -> Row:
    return {"did": did, "refused": reason}


def _utc(moment: dt.datetime) -> str:
    return f"{moment.isoformat()}Z"


def line(row: Row, day: str) -> str:
    """A row as a line of JSON, as Rucio had it on `day`."""
    return json.dumps(row | {"updated_at": f"{day}T00:00:00Z"}, separators=(",", ":"))


def _batches(datasets: Iterable[Row]) -> Iterator[list[Row]]:
    """`datasets` in lists of about `FILES_AT_ONCE` files and at most `rucio.DIDS_AT_ONCE` datasets."""
    batch: list[Row] = []
    n_files = 0
    for dataset in datasets:
        batch.append(dataset)
        n_files += dataset["length"] or _GUESSED_FILES
        if n_files >= FILES_AT_ONCE or len(batch) == rucio.DIDS_AT_ONCE:
            yield batch
            batch, n_files = [], 0
    if batch:
        yield batch
