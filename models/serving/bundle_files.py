"""A bundle as files: `bundle.json` and a folder per horizon, known names, bounded sizes; and their digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from features.errors import ModelError
from features.units import format_bytes
from models.serving.bundle import Bundle
from models.serving.native import MODEL_FILES, read_native

BUNDLE_FOLDER, BUNDLE_FILE = "bundle", "bundle.json"
MAX_FILE_BYTES = 512 << 20
"""Of one file: a forest of 60 trees on 100 000 rows takes about a tenth."""
MAX_BUNDLE_BYTES = 2 << 30
_MAX_FILES = 400
_ABOUT_A_MODEL = {
    *("MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt"),
    *("input_example.json", "serving_input_example.json"),
}
"""What MLflow puts beside a model, for other readers; nothing of it is read here."""
_NAME = re.compile(
    rf"{BUNDLE_FILE}|\d{{1,9}}[a-z]/({'|'.join(sorted({*MODEL_FILES.values(), *_ABOUT_A_MODEL}))})"
)
_BLOCK_BYTES = 1 << 20


def check_listing(sizes: Mapping[str, int]) -> None:
    """Refuse (ModelError) files by their names relative to the bundle, and sizes in bytes.

    There must be a `bundle.json`, and nothing that training does not write: no folder `code`, no pickle.
    """
    if BUNDLE_FILE not in sizes:
        raise ModelError(f"the model bundle has no {BUNDLE_FILE}; train again")
    if strangers := sorted(name for name in sizes if not _NAME.fullmatch(name)):
        raise ModelError(
            f"the model bundle holds {strangers[0][:80]!r}, which training never writes: it was changed, "
            "so it is not read; train again"
        )
    largest = max(sizes, key=lambda name: sizes[name])
    total = sum(sizes.values())
    if sizes[largest] > MAX_FILE_BYTES or total > MAX_BUNDLE_BYTES or len(sizes) > _MAX_FILES:
        raise ModelError(
            f"the model bundle has {len(sizes)} files of {format_bytes(total)}, {largest} of "
            f"{format_bytes(sizes[largest])}: at most {_MAX_FILES} files of {format_bytes(MAX_BUNDLE_BYTES)} "
            f"and each of {format_bytes(MAX_FILE_BYTES)} are read; train fewer or smaller trees"
        )


def bundle_digest(folder: Path) -> str:
    """SHA-256 of all names and contents of the bundle in `folder`, as hex. Raises as `check_listing`."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if _is_file(path)}
    check_listing({name: path.stat().st_size for name, path in paths.items()})
    whole = hashlib.sha256()
    for name in sorted(paths):
        whole.update(f"{name}\n{_file_digest(paths[name])}\n".encode())
    return whole.hexdigest()


def read_bundle(folder: Path) -> tuple[Bundle, dict[int, bytes]]:
    """The bundle in `folder`, and by horizon its checked models. Raises ModelError."""
    try:
        text = (folder / BUNDLE_FILE).read_bytes()
    except OSError as error:
        raise ModelError(f"{BUNDLE_FILE} cannot be read ({error}); train again") from None
    bundle = Bundle.from_json(text)
    models = {
        one.horizon_s: read_native(one.flavour, folder / one.within, bundle.columns) for one in bundle.models
    }
    return bundle, models


def _is_file(path: Path) -> bool:
    """False for a folder; a link counts as a file that training never writes."""
    if path.is_symlink():
        raise ModelError(
            f"the model bundle holds the link {path.name[:80]!r}, so it is not read; train again"
        )
    return not path.is_dir()


def _file_digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            found.update(block)
    return found.hexdigest()


def relative(path: str) -> str:
    """MLflow's path of an artifact, relative to the bundle."""
    return str(PurePosixPath(path).relative_to(BUNDLE_FOLDER))
