"""The API's pages by pdoc, of every room; a warning is a failure.

bench/api_docs.py [--out FOLDER]      exit code 1 if a module cannot be imported or a page is not made
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # before this folder, whose replay.py is no room

import pdoc  # noqa: E402

ROOMS = ("features", "replay", "prefetch", "models", "jobs")


def main() -> int:
    """Write the pages, and print how many; 1 with the first warnings if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="keep the pages here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cachecast-docs-") as scratch:
        out = given.out or Path(scratch)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pdoc.pdoc(*ROOMS, output_directory=out)
        pages = sorted(out.rglob("*.html"))
        # What libraries say of themselves while they are loaded is not about these pages.
        ours = [one for one in caught if "pdoc" in one.filename or str(ROOT) in one.filename]
        modules = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path.stem != "__main__"]
        print(f"{len(pages)} pages of {len(modules)} modules, {len(ours)} warnings")
        for one in ours[:10]:
            print(f"{one.filename}:{one.lineno}: {one.message}")
        return 1 if ours or len(pages) < len(modules) else 0


if __name__ == "__main__":
    sys.exit(main())
