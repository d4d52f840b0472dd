"""A webhook on this machine, which keeps the messages it gets."""

from __future__ import annotations

import json
from typing import Any

import http_answers


class Webhook:
    """Answers `status` at `url` within a `with`; `messages`: those it got, in the order of their arrival."""

    def __init__(self, path: str = "secret-path") -> None:
        self.messages: list[dict[str, Any]] = []
        self.status = 204
        webhook = self

        class Kept(http_answers.Answers):
            def do_POST(self) -> None:
                webhook.messages.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.say(webhook.status)

        self._server = http_answers.answering(Kept)
        self._path = path

    def __enter__(self) -> Webhook:
        self.url = f"{self._server.__enter__()}/{self._path}"
        return self

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(None, None, None)
