"""What the command line shows is what it was given, brackets and all."""

from __future__ import annotations

import pytest

from jobs.cli import console

NAME = "/store/[red]/[/bold]/f[1].root"


@pytest.mark.parametrize("answer", [{"name": NAME}, [{"name": NAME, "n": 1}]], ids=["facts", "table"])
def test_names_are_no_markup(capsys: pytest.CaptureFixture[str], answer: object) -> None:
    console.show(answer, as_json=False)
    assert NAME in capsys.readouterr().out
