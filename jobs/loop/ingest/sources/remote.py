"""Files on HDFS and S3 for sources that are decoded in this process, copied one at a time to be read."""

import contextlib
import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from features.common.errors import ConfigError, InputError
from features.common.input_files import InputFile
from jobs.ground.store.filesystems import store_at
from jobs.ground.store.filesystems.remote import Entry, RemoteStore
from jobs.loop.ingest.pull_input import Mark, changed_at
from jobs.loop.ingest.sources.local import BEING_WRITTEN, WILD, alternatives, check_there

_MOST_LEVELS = 100
_NOT_PLAIN = re.compile(f"{WILD.pattern}|#")  # a store's URL ends at a `#`, as at a `?`


def files_at(path: str, *, whole: bool = False) -> list[InputFile]:
    """The files at `path` (a file, a folder or a glob), in order, without those still being written.

    Of a folder the same as on this machine; see `local.files_in`. Raises InputError if nothing is there.
    """
    return [
        InputFile(
            Path(entry.path), "", True, store.uri_of(entry.path), functools.partial(store.fetch, entry.path)
        )
        for store, entry in _entries(path, whole=whole)
    ]


def marks(path: str, *, whole: bool) -> list[Mark]:
    """The marks of the files at `path`; see `pull_input.Engine.inputs`."""
    return [
        Mark(store.uri_of(entry.path), entry.size_bytes, changed_at(round(entry.modified_s * 1000)))
        for store, entry in _entries(path, whole=whole)
    ]


def _entries(path: str, *, whole: bool) -> list[tuple[RemoteStore, Entry]]:
    entries = {
        entry.path: (store, entry)
        for store, place, is_named in _places(path)
        for entry in _files(store, place, whole)
        if not entry.path.endswith(BEING_WRITTEN) or (is_named and not place.is_folder)
    }
    return [entries[key] for key in sorted(entries)]


def _places(path: str) -> list[tuple[RemoteStore, Entry, bool]]:
    """What is at a path, and whether by its very name: such a name is no glob, as on this machine."""
    with contextlib.suppress(InputError, FileNotFoundError):  # what is before its wildcards may be no store
        store, name = _place(path)
        return [(store, store.entry(name), True)]
    there = dict[str, list[tuple[RemoteStore, Entry, bool]]]()
    for form in alternatives(path):
        store, pattern = _place(form)
        there[form] = []
        with contextlib.suppress(FileNotFoundError):
            there[form] += [(store, place, not pattern) for place in store.matching(pattern)]
    check_there(path, there)
    return list(itertools.chain.from_iterable(there.values()))


def _files(store: RemoteStore, place: Entry, whole: bool, level: int = 0) -> Iterator[Entry]:
    if not place.is_folder:
        yield place
        return
    entries = list[Entry]()
    with contextlib.suppress(FileNotFoundError):  # it is gone since it was listed, and its files with it
        entries = store.inside(place)
    for entry in entries:
        name = entry.path.rpartition("/")[2]
        is_hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
        if not is_hidden and (not entry.is_folder or (level < _MOST_LEVELS and (whole or "=" in name))):
            yield from _files(store, entry, whole, level + 1)


def _place(path: str) -> tuple[RemoteStore, str]:
    """The store of a path up to its first wildcard, and what is below that: empty, a name or a glob."""
    scheme, _, rest = path.partition("://")
    if scheme not in ("hdfs", "s3a", "s3"):
        raise InputError(f"cannot read {path}: this source reads files of this machine, hdfs:// and s3a://")
    plain = list(itertools.takewhile(lambda part: not _NOT_PLAIN.search(part), rest.split("/")))
    try:
        store = store_at(f"{scheme}://{'/'.join(plain)}")
    except ConfigError as error:
        raise InputError(f"cannot read {path}: {str(error).partition(': ')[2]}") from None
    assert isinstance(store, RemoteStore)
    return store, "/".join(rest.split("/")[len(plain) :])
