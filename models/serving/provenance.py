"""Versions of the code and libraries that made a model."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from pathlib import Path


def code_version() -> dict[str, str]:
    """`package_version`, and `git_sha` if the package is in a git checkout with a commit."""
    found = {"package_version": importlib.metadata.version("cachecast")}
    sha = _git_sha(Path(__file__).parent)
    return found | ({"git_sha": sha} if sha else {})


def _git_sha(folder: Path) -> str | None:
    if shutil.which("git") is None:
        return None
    answer = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "HEAD"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    return answer.stdout.strip() or None
