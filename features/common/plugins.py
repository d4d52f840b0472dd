"""What other packages bring by entry points: found, loaded, and named where their code fails."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from features.common.errors import ConfigError


class Group(NamedTuple):
    """The entry points called `name`, each a `what`; `through`: errors that are nobody's fault."""

    what: str
    name: str
    through: tuple[type[BaseException], ...] = (KeyboardInterrupt,)

    def of_others(self, name: str = "") -> list[EntryPoint]:
        """Those that other packages bring, or those of them called `name`. Raises ConfigError."""
        try:
            entries = entry_points(group=self.name)
        except Exception as error:  # noqa: BLE001  it is whatever a package's file makes of the library
            text = f"{type(error).__name__}: {error}"
            raise ConfigError(
                self.what, f"the entry points of an installed package cannot be read: {text}; reinstall it"
            ) from None
        named = [entry for entry in entries if name in ("", entry.name)]
        return [entry for entry in named if entry.dist is not None and entry.dist.name != "cachecast"]

    def load(self, entries: Sequence[EntryPoint]) -> Any:
        """What the one entry of `entries` names. Raises ConfigError."""
        entry, *others = entries
        if others:
            raise self.fault(entry, f"is brought by {len(entries)} packages, of which only one may stay")
        with blamed(lambda what: self.fault(entry, what), "cannot be loaded", self.through):
            return entry.load()

    def fault(self, entry: EntryPoint, what: str) -> ConfigError:
        """The error that names the package of `entry`."""
        package = entry.dist and entry.dist.name
        return ConfigError(
            self.what, f"{entry.name!r} of the package {package} {what}; correct or uninstall it"
        )


@contextmanager
def blamed(
    fault: Callable[[str], ConfigError], verb: str, through: tuple[type[BaseException], ...]
) -> Iterator[None]:
    """Raise `fault(what)` where code of others fails in the block, but for errors of the types `through`.

    What that code prints is no answer of a command: it goes to stderr. For one thread at a time.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except through:
        raise
    except BaseException as error:  # noqa: BLE001  it is whatever the code of others raises
        raise fault(f"{verb}: {in_a_line(error)}") from None


def in_a_line(error: BaseException) -> str:
    """What went wrong: of a stack trace that a worker sent the last line that names an error."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    lines = re.findall(r"^(?:[\w.]*[.])?(\w+(?:Error|Exception)\b.*)", text, re.MULTILINE)
    return str([text.partition("\n")[0], *lines][-1])
