"""The packages as a zip for Spark's workers on other machines, for `spark-submit --py-files`.

A wheel would be accepted too, but its modules could not be imported.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from features.common.files import replaced

ROOMS = ("features", "replay", "prefetch", "models", "jobs", "dags", "conf")
_FORMS = frozenset({".py", ".toml", ".typed", ".html", ".css", ".js", ".svg"})
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write(path: Path) -> Path:
    """Write the zip at `path`, atomically; equal code makes equal bytes. Returns `path`."""
    with replaced(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in _files():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes())
    return path


def _files() -> Iterator[tuple[str, Path]]:
    """Name in the archive and file, of every room this process runs from, in order."""
    root = Path(__file__).parents[3]
    for room in ROOMS:
        for file in sorted((root / room).rglob("*")):
            if file.suffix in _FORMS and file.is_file():
                yield str(file.relative_to(root)), file
