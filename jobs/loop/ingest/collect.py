"""The daemon that writes what caches report, by UDP and through a broker, into captures and lines."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from features.common.errors import ConfigError, InputError
from features.common.units import format_bytes
from jobs.ground.settings.tree import CollectSettings
from jobs.ground.signals import until_signalled
from jobs.ground.store.locks import exclusive
from jobs.loop.ingest.bus import Bus, Collecting, made_writable
from prefetch.rucio.broker import Broker, BrokerAccess
from prefetch.xcache.receiver import Receiver
from prefetch.xcache.rolling import Quota, RollingFiles

_LOCK = ".collect.lock"
_BROKER_S = 20


def run(how: Collecting, *, host: str, port: int | None, out: Path) -> dict[str, int]:
    """Write what is sent to UDP `host`:`port` into `out`, and what is published at the settings' broker into
    folders below `out`/bus, until SIGTERM or SIGINT. One of the two may be left out.

    Returns the counts of `receiver.COUNTS`, and those of `bus.COUNTS` with `bus_`. When captures fill their
    quota, the log gets an alarm; further datagrams are counted and dropped, messages left at the broker.
    Raises ServiceError (port, disk), ConflictError (another collector writes to `out`), ConfigError.
    """
    settings = how.settings
    if port is None and not settings.broker:
        raise InputError("nothing to collect: give --port for UDP, or --broker, or set [collect] broker")
    broker = _broker(settings) if settings.broker else None
    made_writable(out)
    with exclusive(out / _LOCK, "collect"), until_signalled() as signalled, ThreadPoolExecutor() as pool:
        ended = threading.Event()

        def stopping() -> bool:
            return signalled() or ended.is_set()

        try:
            following = (
                None if broker is None else pool.submit(_follow, how, broker, out / "bus", stopping, ended)
            )
            counts = {} if port is None else _listen(how, host, port, out, stopping)
            return counts if following is None else counts | following.result()
        finally:
            ended.set()


def _listen(how: Collecting, host: str, port: int, out: Path, stopping: Callable[[], bool]) -> dict[str, int]:
    """Keep datagrams until `stopping`; their counts."""
    quota_bytes = how.settings.quota
    with contextlib.closing(RollingFiles(out, roll_bytes=how.roll_bytes, roll_s=how.roll_s)) as files:
        receiver = Receiver(files, Quota(out, quota_bytes), host=host, port=port, now_s=how.now_s)
        n_reported = 0

        def report(event: str = "received") -> None:
            nonlocal n_reported
            n_refused, alarm = receiver.counts["over_quota"], ""
            if n_refused > n_reported:
                alarm = _full(out, quota_bytes, f"{n_refused} datagrams were not kept")
            n_reported = n_refused
            how.report("collect", receiver.counts, event, alarm)

        how.say(f"listening on UDP {host}:{receiver.port}, writing to {out}")
        receiver.run(stopping, report_every_s=how.log_every_s, report=report)
    report("stopped")
    return dict(receiver.counts)


def _follow(
    how: Collecting, broker: Broker, out: Path, stopping: Callable[[], bool], ended: threading.Event
) -> dict[str, int]:
    """Keep messages until `stopping`; their counts. Sets `ended` at its end."""
    settings = how.settings
    try:
        with Bus(out, broker, how) as bus:
            n_reported = 0

            def report(event: str = "followed") -> None:
                nonlocal n_reported
                bus.measure()
                n_foreign, n_reported = bus.counts["malformed"] - n_reported, bus.counts["malformed"]
                alarm = ""
                if bus.is_full():
                    alarm = _full(out, settings.quota, "messages are left at the broker")
                elif n_foreign:
                    alarm = (
                        f"{n_foreign} messages of {', '.join(settings.subscribe)} hold no record of a cache, "
                        "and were acknowledged, so a queue has them no more; does [collect] subscribe name "
                        "the queue of somebody else?"
                    )
                how.report("collect_bus", bus.counts, event, alarm)

            how.say(f"following {settings.broker}, writing to {out}")
            bus.run(stopping, report)
        report("stopped following")
        return {f"bus_{name}": n for name, n in bus.counts.items()}
    finally:
        ended.set()


def _broker(settings: CollectSettings) -> Broker:
    if not settings.subscribe:
        raise ConfigError(
            "collect.subscribe", 'names nothing to follow; set it, for example to ["/topic/NAME"]'
        )
    access = BrokerAccess(
        url=settings.broker,
        username=settings.broker_username,
        password=settings.broker_password.get_secret_value(),
        ca_cert=settings.broker_ca_cert,
        cert=settings.broker_cert,
        key=settings.broker_key,
        timeout_s=_BROKER_S,
        section="collect",
    )
    return Broker(access)


def _full(out: Path, quota_bytes: int, so: str) -> str:
    return (
        f"captures in {out} fill their quota of {format_bytes(quota_bytes)}, {so}; "
        "pull with --new-only, which deletes what is past [collect] keep, or raise [collect] quota"
    )
