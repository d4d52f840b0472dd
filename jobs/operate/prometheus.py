"""Figures for Prometheus in files: node_exporter's textfile collector reads `[metrics] folder`.

A file per command and cache says when it ran last, how long, and whether it worked; `status` and `collect`
leave their own figures beside it. A figure that cannot be written is a warning: it fails no job.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from features.errors import CachecastError
from jobs.settings.layers import layered

_MISUSED = 2
"""Exit code of a line with a command or option that there is not: what never ran would fail for ever."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

Sample = tuple[str, str, Mapping[str, str], float]
"""Name, help, labels and value of one figure; figures of one name have the same labels' names."""


def folder(words: Sequence[str] = (), env: Mapping[str, str] = os.environ) -> Path | None:
    """`[metrics] folder`, None where no figures are asked for; `words`: a command line with its --conf."""
    conf = _option(words, "--conf")
    values, _ = layered(Path(conf) if conf else None, env=env)
    named = values["metrics"]["folder"]
    return Path(named) if named else None


@contextmanager
def measured(words: Sequence[str], *, warn: Callable[[str], None]) -> Iterator[None]:
    """Run a command line, and leave its figures; a line that calls no command, or calls it wrong, does not.

    It costs some milliseconds of a command that takes a second to load: the settings are read once more.
    """
    command, cache = _command(words), _option(words, "--cache") or ""
    started_s, ok, ran = time.time(), False, True
    try:
        yield
        ok = True
    except SystemExit as end:
        ok, ran = end.code in (None, 0), end.code != _MISUSED
        raise
    finally:
        if command and ran and "--help" not in words:
            labels = {"command": command, "cache": cache}
            _leave(words, _job_samples(labels, started_s, ok=ok), f"{command}-{cache}", warn)


def leave_counts(
    what: str, labels: Mapping[str, str], counts: Mapping[str, int], warn: Callable[[str], None]
) -> None:
    """Leave a service's counts, as `cachecast_collect_lost`; a warning where that fails."""
    found = [
        (f"cachecast_{what}_{name}", "see docs/hosts.md", labels, float(n)) for name, n in counts.items()
    ]
    found.append((f"cachecast_{what}_seen_seconds", "when it told this, since 1970", labels, time.time()))
    _leave([], found, f"{what}-{'-'.join(labels.values())}", warn)


def leave(where: Path, name: str, samples: Sequence[Sample]) -> None:
    """Replace the file of `name` in folder `where`, whole. Raises OSError."""
    # Its client takes a tenth of a second to load, which only sites that ask for figures pay.
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile  # noqa: PLC0415

    registry, gauges = CollectorRegistry(), dict[str, Gauge]()
    for metric, text, labels, value in samples:
        if metric not in gauges:
            gauges[metric] = Gauge(metric, text, list(labels), registry=registry)
        (gauges[metric].labels(**labels) if labels else gauges[metric]).set(value)
    where.mkdir(parents=True, exist_ok=True)
    write_to_textfile(str(where / f"cachecast-{_UNSAFE.sub('-', name).strip('-')}.prom"), registry)


def _leave(words: Sequence[str], samples: Sequence[Sample], name: str, warn: Callable[[str], None]) -> None:
    with contextlib.suppress(CachecastError):  # settings that cannot be have failed the command itself
        try:
            if (where := folder(words)) is not None:
                leave(where, name, samples)
        except OSError as error:
            warn(f"no figures of this run: {error.strerror}; see [metrics] folder")


def _job_samples(labels: Mapping[str, str], started_s: float, *, ok: bool) -> list[Sample]:
    now_s = time.time()
    samples = [
        ("cachecast_job_ended_seconds", "when the command last ended, since 1970", labels, now_s),
        ("cachecast_job_duration_seconds", "how long it took", labels, now_s - started_s),
        ("cachecast_job_failed", "1 if it failed", labels, float(not ok)),
    ]
    return samples


def _command(words: Sequence[str]) -> str:
    """What comes before the first option: `push`, `rucio sync`."""
    named = []
    for word in words:
        if word.startswith("-"):
            break
        named.append(word)
    return " ".join(named[:2])


def _option(words: Sequence[str], option: str) -> str | None:
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None
