"""The API's pages by pdoc, of every room; a warning is a failure.

bench/api_docs.py [--out FOLDER]      exit code 1 if a module cannot be imported or a page is not made

Needs the environment that `make verify` makes: .venv/bin/python bench/api_docs.py
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import pdoc  # noqa: E402
from pdoc.doc_types import resolve_annotations  # noqa: E402

ROOMS = ("features", "replay", "prefetch", "models", "jobs")


def main() -> int:
    """Write the pages, and print how many; 1 with the first warnings if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="keep the pages here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cachecast-docs-") as scratch:
        out = options.out or Path(scratch)
        modules = public_modules()
        name_annotations()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pdoc.pdoc(*ROOMS, output_directory=out)
        pages = sorted(out.rglob("*.html"))
        # Clients of MLflow and urllib3, which classes of ours extend, name what pdoc cannot load or read.
        warned = [warning for warning in caught if not re.search("plotly|for urllib3", str(warning.message))]
        # What libraries say of themselves while they are loaded is not about these pages.
        ours = [warning for warning in warned if "pdoc" in warning.filename or str(ROOT) in warning.filename]
        print(f"{len(pages)} pages of {len(modules)} public modules, {len(ours)} warnings")
        for warning in ours[:10]:
            print(f"{warning.filename}:{warning.lineno}: {warning.message}")
        return 1 if ours or len(pages) < len(modules) else 0


def public_modules() -> list[ModuleType]:
    """The modules of every room, less those whose package says itself what is public (`__all__`)."""
    modules, closed = [], set[str]()
    for room in ROOMS:
        for entry in pkgutil.walk_packages([str(ROOT / room)], f"{room}."):
            package = entry.name.rpartition(".")[0]
            if entry.name.endswith("__main__") or package in closed:
                closed.add(entry.name)
                continue
            module = importlib.import_module(entry.name)
            modules.append(module)
            if hasattr(module, "__all__"):
                closed.add(entry.name)
    return modules


def name_annotations() -> None:
    """Give the constructors of named tuples the types that their classes name.

    typing leaves them as words to be looked up in a module of its own, where pdoc finds none.
    """
    for module in list(sys.modules.values()):
        if module.__name__.partition(".")[0] in ROOMS:
            for member in list(vars(module).values()):
                if isinstance(member, type) and issubclass(member, tuple) and hasattr(member, "_fields"):
                    home = sys.modules[member.__module__]
                    named = resolve_annotations(member.__annotations__, home, None, member.__qualname__)
                    member.__new__.__annotations__ = named


if __name__ == "__main__":
    sys.exit(main())
