"""`cachecast` as its program runs it, in this process: the exit code, all that it writes, an environment."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from jobs.cli import ending, main


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def cachecast(*words: str | Path, **env: str) -> Ended:
    """Run a command with no environment but `env`, a plain PATH and a home of nobody's."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    variables = {"PATH": "/usr/bin:/bin", "HOME": "/tmp/cachecast-test-home"} | env
    with (
        _as_program(["cachecast", *map(str, words)], variables),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Ended(code, out.getvalue(), err.getvalue())


def asked(*words: str | Path) -> Any:
    """The JSON that a command answers with. Raises what it raises."""
    answer = CliRunner().invoke(main.app, [*map(str, words), "--json"])
    if answer.exception is not None:
        raise answer.exception
    return json.loads(answer.stdout)


@contextlib.contextmanager
def _as_program(words: list[str], env: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ending, "end_quietly", lambda: None)  # it is for the end of a process
        patch.setattr(sys, "argv", words)
        before, mask = dict(os.environ), os.umask(0o022)
        os.environ.clear()
        os.environ.update(env)
        try:
            yield
        finally:
            os.umask(mask)
            os.environ.clear()
            os.environ.update(before)
