"""What to do first about each alarm of `status`, and when it ends: the table of docs/troubleshoot.md."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Remedy(NamedTuple):
    """`do`: first; NAME and TIME stand for the cache and the decision time. `ends`: when the alarm does."""

    do: str
    ends: str


NEW_MODEL: Final = (
    "run `cachecast cycle --train`, `cachecast evaluate --from DAY` and `cachecast promote`, in this order"
)
REMEDIES: Final[Mapping[str, Remedy]] = {
    "no-champion": Remedy(
        f"{NEW_MODEL}; the text says from which day on that can work", "with the promotion"
    ),
    "prediction-late": Remedy(
        "run `cachecast cycle --as-of TIME`: the step that fails is the cause; a model that is too old needs "
        "another",
        "with predictions of that time or a later one",
    ),
    "incomplete": Remedy(
        "when its records are there, pull them, and judge the time again",
        "when that time, or a later one, is judged complete",
    ),
    "drift": Remedy(
        "if it lasts for days, run `cachecast cycle --train`; where a champion serves, then evaluate and "
        "promote",
        "with the first predictions of a model that learned since",
    ),
    "plan-late": Remedy(
        "run `cachecast plan --cache NAME`: its error says what is missing",
        "with a plan of that time or a later one",
    ),
    "push-failed": Remedy(
        "read the causes in `cachecast push status --cache NAME`; when they are mended, `cachecast push "
        "resume --cache NAME --failed` tries again; else `cachecast push cancel --cache NAME`",
        "when all is done or cancelled, with the next push, or the plan's time, which the text has",
    ),
    "not-pushed": Remedy(
        "run `cachecast push run --cache NAME --as-of TIME`; it resumes where it stopped",
        "with the push, the next plan, or the plan's time; withheld: with a promotion",
    ),
    "unproven": Remedy(
        "`cachecast push cancel --cache NAME --unpin` stops what is undone and gives up the pins",
        "at once, or with the plan's time",
    ),
    "above-high-watermark": Remedy(
        "free the disk, or restart a server that does not purge; compare `capacity` and `watermarks` with "
        "the server's",
        "with the next look: a steward's each minute, a scan's, a plan's",
    ),
    "pins-over-limit": Remedy(
        "correct `capacity` or [push] journal; if both are right, `cachecast push cancel --cache NAME "
        "--unpin`, and the next plan pins what fits",
        "at once",
    ),
    "steward-silent": Remedy(
        "restart its service; if it is not wanted any more, stop the service and delete the cache's file "
        "in [steward] state",
        "with its first report, within a minute",
    ),
    "steward-outrun": Remedy(
        "nothing after a burst; if it happens each day, lower the low watermark of server and settings",
        "when the cache is below its high watermark, by the steward or by its purge",
    ),
    "steward-blind": Remedy(
        "start the collector, add the four lines of docs/steward.md to the server and restart it, or run the "
        "steward as the server's user: the text says which",
        "within a minute after the repair",
    ),
    "steward-implausible": Remedy(
        "compare `capacity` and `watermarks` with the server's; if they agree and the cache really is too "
        "full, restart the steward with --force",
        "after the restart",
    ),
    "steward-impostor": Remedy(
        "find out who sends to the collector in the cache's name, and let the firewall admit the caches "
        "alone",
        "ten minutes after the last such datagram",
    ),
    "steward-cache": Remedy(
        "start the server, mount its disks, and let the steward read its namespace",
        "within a minute after the repair",
    ),
    "steward-lists": Remedy(
        "correct [push] journal, or restore its database; before the first push of a site make one: "
        "`cachecast push resume --cache NAME`",
        "within a minute after the journal answers",
    ),
    "steward-tables": Remedy(
        "mend the network or the store; its figures reach the tables then", "when the tables answer"
    ),
    "steward-order": Remedy(
        "start MLflow if it is unavailable; else `cachecast promote --rollback`, or train, evaluate and "
        "promote",
        "within ten minutes, in which the steward looks again",
    ),
    "steward-clock": Remedy("set both clocks by NTP, then restart the steward", "after the restart"),
    "queue-doubted": Remedy(
        "compare its answer with the broker's own pages, and mend what `cachecast queue` reads",
        "when it keeps its word again",
    ),
    "collector-full": Remedy(
        "pull the captures with --new-only, or raise [collect] quota",
        "when what was pulled is older than [collect] keep, or with a larger quota",
    ),
}
WITHHELD: Final = (
    "evaluate and promote: `cachecast promote --why` says what is missing; `cachecast push run --cache "
    "NAME --as-of TIME --unproven` carries it out nevertheless"
)
UNTIL_THEN: Final = (
    "wait; for plans until then, once there are some days of records, set `[mlflow] serve = "
    '["champion", "candidate"]` and run `cachecast cycle --train`'
)
"""Of plans that no promotion covers, and of a region without days enough to promote a model."""
