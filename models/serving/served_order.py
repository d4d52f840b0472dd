"""An order of eviction as a steward follows it, from the files of a version in MLflow or in a copy."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
import shutil
import tempfile
from pathlib import Path

from features.common.errors import ModelError
from models.serving.bundle_files import bundle_digest, copy_bundle, read_about, read_order
from models.serving.names import Named
from replay.policies.learned import Order

_DIGEST = re.compile("[0-9a-f]{64}")
_OURS = re.compile(rf"{_DIGEST.pattern}|\.[0-9a-f]+\.draft")


@dataclasses.dataclass(frozen=True)
class ServedOrder:
    """An order of eviction for the caches of a region.

    `kinds`: names of the kinds of files in its training (`replay.access_context`); `readers`: the kinds of
    readers that it distinguishes (`features.accesses`); `until_s`: end of the training data, s since
    1970; `digest`: of its files.
    """

    order: Order
    kinds: tuple[str, ...]
    until_s: int
    version: str
    readers: tuple[str, ...] = ()
    digest: str | None = None


def served_order(folder: Path, named: Named) -> ServedOrder | None:
    """The order in the version's files in `folder`; None: they have none.

    Raises ModelError if they cannot be read.
    """
    model = read_about(folder).order
    if model is None:
        return None
    order = Order(model.until_s, read_order(folder, model))
    return ServedOrder(order, model.kinds, model.until_s, named.version, model.readers, digest=named.digest)


def kept_order(copies: Path, named: Named) -> ServedOrder | None:
    """The order of the version whose files `keep_files` has copied; None without a copy that can be read.

    The copy counts only if its files have the version's digest. They are read once, whoever may write there.
    """
    folder = _copy(copies, named)
    if folder is None:
        return None
    with contextlib.suppress(OSError, ModelError), tempfile.TemporaryDirectory() as scratch:
        copy_bundle(folder, Path(scratch))
        if bundle_digest(Path(scratch)) == named.digest:
            return served_order(Path(scratch), named)
    return None


def keep_files(folder: Path, copies: Path, named: Named) -> None:
    """Copy a version's files into the folder `copies`, in place of those of others. Raises OSError."""
    if (copy := _copy(copies, named)) is None:
        return
    copies.mkdir(parents=True, exist_ok=True)
    draft = copies / f".{secrets.token_hex(8)}.draft"
    try:
        shutil.copytree(folder, draft)
        for other in copies.iterdir():
            if other != draft and _OURS.fullmatch(other.name):
                _remove(other)
        draft.rename(copy)
    finally:
        _remove(draft)


def _copy(copies: Path, named: Named) -> Path | None:
    is_usable = named.digest is not None and _DIGEST.fullmatch(named.digest)
    return copies / named.digest if is_usable and named.digest is not None else None


def _remove(path: Path) -> None:
    """Remove a folder, or what lies in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
