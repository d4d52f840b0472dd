"""The doctor and an MLflow whose database is of another version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import http_answers
import pytest

from jobs.operator.operate import doctor


@pytest.mark.parametrize(
    ("revision", "state", "words"),
    [
        ("bd07f7e963c5", "bad", "mlflow db upgrade sqlite:////"),
        ("ffffffffffff", "bad", "a newer one wrote it: install that one"),
        (None, "ok", "a file on this machine"),
    ],
)
def test_the_schema_of_a_database_file_is_compared(
    tmp_path: Path, revision: str | None, state: str, words: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.executemany("INSERT INTO alembic_version VALUES (?)", [(revision,)] if revision else [])
        database.commit()
    check = doctor.mlflow(f"sqlite:///{tmp_path}/mlflow.db")
    assert check.state == state
    assert words in check.detail


def test_what_is_no_database_is_named_and_a_missing_one_will_be_made(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database, though it is long enough to be one" * 100)
    check = doctor.mlflow(f"sqlite:///{tmp_path}/mlflow.db")
    assert (check.state, "is it a database of MLflow's?" in check.detail) == ("bad", True)
    assert doctor.mlflow(f"sqlite:///{tmp_path}/other.db").state == "ok"
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    ("code", "body", "state"),
    [
        (500, b"Detected out-of-date database schema (found version a), postgresql://u:hush@h/db", "bad"),
        (401, b"log in", "ok"),
        (200, b"{}", "ok"),
    ],
)
def test_a_server_that_cannot_read_its_database_is_bad(code: int, body: bytes, state: str) -> None:
    class Answers(http_answers.Answers):
        def do_GET(self) -> None:
            self.say(*((200, b"OK") if self.path == "/health" else (code, body)))

    with http_answers.answering(Answers) as url:
        check = doctor.mlflow(url.replace("http://", "http://ada:hush@"))
    assert check.state == state
    assert ("mlflow db upgrade DATABASE_URI" in check.detail) == (state == "bad")
    assert "hush" not in f"{check.detail}{check.configured}"
