"""Runs the notebooks of docs/examples from end to end, and sees that git keeps them without outputs.

bench/notebooks.py [--strip]     exit code 1 if a cell raises, none draws, or an output is kept

`--strip` takes the outputs out of the files, as after an edit in Jupyter, and runs nothing.

Needs the environment that `make verify` makes: .venv/bin/python bench/notebooks.py
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
TIMEOUT_S = 900


def main() -> int:
    """Run all notebooks; 1 if one is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strip", action="store_true", help="take the outputs out of the files")
    options = parser.parse_args()
    paths = sorted(EXAMPLES.glob("*.ipynb"))
    if options.strip:
        for path in paths:
            nbformat.write(stripped(path), path)
        return 0
    passed = [is_well(path) for path in paths]
    return 0 if passed and all(passed) else 1


def stripped(path: Path) -> nbformat.NotebookNode:
    """The notebook at `path` without what running it left."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            cell.metadata.pop("execution", None)
    return notebook


def is_well(path: Path) -> bool:
    """Run a notebook, and print how it went."""
    notebook, began = nbformat.read(path, as_version=4), time.monotonic()
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if any(cell.outputs or cell.execution_count for cell in codes):
        print(f"{path.name}: outputs are kept in the file; run bench/notebooks.py --strip")
        return False
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        try:
            NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": folder}}).execute()
        except CellExecutionError as error:
            print(f"{path.name}: {str(error)[-2000:]}")
            return False
    pictures = sum("image/png" in output.get("data", {}) for cell in codes for output in cell.outputs)
    took_s = time.monotonic() - began
    print(f"{path.name}: {len(codes)} cells, {pictures} pictures, {took_s:.0f} s", flush=True)
    return pictures > 0


if __name__ == "__main__":
    sys.exit(main())
