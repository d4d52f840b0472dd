"""Sources that may be missing or damaged: what they say, or since when it is unknown, and why."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import TypeVar

from features.common.errors import CachecastError

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A source that cannot be used now; `since_s`: when it was last, or the first question."""

    since_s: float
    why: str


class Sources:
    """Remembers when each source could last be used."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._known_s: dict[str, float] = {}
        self._logged: dict[str, str] = {}

    def known(self, name: str, read: Callable[[], T], *, now_s: float) -> T | Unknown:
        """What `read` finds in the source `name`, or why nothing.

        An error that no one foresaw is logged with its traceback, once until the source answers again or
        fails otherwise: the page names its type only.
        """
        try:
            found = read()
        except CachecastError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001  a damaged file may fail anywhere: the rest is shown all the same
            why = f"it cannot be read ({type(error).__name__}); the service's log says more"
            if self._logged.get(name) != why:
                self._logged[name] = why
                _log.exception("operator's page: the source %r cannot be read", name)
        else:
            self._logged.pop(name, None)
            self._known_s[name] = now_s
            return found
        return Unknown(self._known_s.get(name, self._began_s), why)
