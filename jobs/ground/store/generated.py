"""The mark of generated data: on tables a file at their root, in a trace an entry in the file's schema."""

from features.common.errors import InputError
from features.schema import ACCESSES
from jobs.ground.store.filesystems import store_at
from jobs.ground.store.tables import Tables

MARK = "GENERATED.txt"


def mark(tables: Tables, what: str) -> None:
    """Mark `tables` as generated from `what`, for example `mwt2, seed 1`.

    Raises InputError if they hold accesses and are not marked: those are real.
    """
    if told_by(tables) is None and tables.exists(ACCESSES):
        raise InputError(
            f"{tables.root} holds accesses that were not generated; give generated ones tables of their own"
        )
    store_at(tables.root).put_if_absent(MARK, f"{what}\n".encode())


def told_by(tables: Tables) -> str | None:
    """What `tables` were generated from; None: they are not marked."""
    try:
        return store_at(tables.root).read(MARK).decode(errors="replace").strip()[:200]
    except FileNotFoundError:
        return None


def warning(tables: Tables) -> str | None:
    """A sentence for screens and pages; None: the tables are not marked."""
    what = told_by(tables)
    return None if what is None else f"Generated data, not a site's: {what}"
