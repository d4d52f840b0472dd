"""An MLflow that lies: it leads elsewhere, or never ends its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import http_answers
import pytest

from features.common.errors import ServiceError
from models.serving import mlflow_session
from models.serving.mlflow_session import check_place, connect, in_time

HOME = "https://mlflow.example.org:5000"


@pytest.mark.parametrize(
    "place", ["mlflow-artifacts:/1/a/artifacts", "mlflow-artifacts://mlflow.example.org:5000/1", "s3://b/1"]
)
def test_files_are_where_the_server_or_a_store_keeps_them(place: str) -> None:
    check_place(HOME, place)
    check_place("sqlite:///m.db", "file:///srv/artifacts")


@pytest.mark.parametrize(
    "place",
    [
        *(
            "mlflow-artifacts://evil.example/1",
            "mlflow-artifacts://mlflow.example.org/1",
            "http://169.254.0.1/x",
        ),
        *("https://mlflow.example.org:5000/x", "file:///etc", "/etc", "", "ftp://evil.example", "runs:/1"),
    ],
)
def test_a_place_that_would_get_the_login_or_our_folders_is_refused(place: str) -> None:
    with pytest.raises(ServiceError, match="as the place of a run's files"):
        check_place(HOME, place)


def test_a_call_without_an_end_is_left_alone() -> None:
    assert in_time(lambda: 3, within_s=5) == 3
    with pytest.raises(ZeroDivisionError):
        in_time(lambda: 1 // 0, within_s=5)
    began, end = time.monotonic(), threading.Event()
    with pytest.raises(TimeoutError, match="no end of an answer"):
        in_time(end.wait, within_s=0.1)
    end.set()
    assert time.monotonic() - began < 5


class Handler(http_answers.Answers):
    """Healthy; else it leads to `elsewhere`, or drips."""

    asked: list[str]
    drips = False

    def answer(self) -> None:
        self.asked.append(self.path)
        if self.path == "/health":
            return self.say(200)
        if self.drips:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(40):
                self.wfile.write(b" ")
                time.sleep(0.05)
            return None
        return self.say(302, location="/elsewhere")

    do_GET = do_POST = answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Handler, "asked", [], raising=False)
    with http_answers.answering(Handler) as url:
        yield url


def test_a_redirect_is_not_followed(server: str) -> None:
    with pytest.raises(ServiceError, match="MLflow at http"):
        connect(server, "", "x")
    assert "/elsewhere" not in Handler.asked and len(Handler.asked) > 1


def test_an_answer_that_drips_ends_in_time(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_session, "_CALL_S", 0.3)
    monkeypatch.setattr(Handler, "drips", True)
    began = time.monotonic()
    with pytest.raises(ServiceError, match="no end of an answer"):
        connect(server, "", "x")
    assert time.monotonic() - began < 1.5
