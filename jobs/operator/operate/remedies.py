"""What to do first about each alarm of `status`, as in the table of docs/troubleshoot.md."""

from collections.abc import Mapping
from typing import Final

NEW_MODEL: Final = (
    "run `cachecast cycle --train`, `cachecast evaluate --from DAY` and `cachecast promote`, in this order"
)
REMEDIES: Final[Mapping[str, str]] = {
    "no-champion": f"{NEW_MODEL}; the text says from which day on that can work",
    "prediction-late": (
        "run `cachecast cycle --as-of TIME`: the step that fails is the cause; a model that is too old needs "
        "another"
    ),
    "incomplete": "when its records are there, pull them, and judge the time again",
    "drift": (
        "if it lasts for days, run `cachecast cycle --train`; where a champion serves, then evaluate and "
        "promote"
    ),
    "plan-late": "run `cachecast plan --cache NAME`: its error says what is missing",
    "push-failed": (
        "read the causes in `cachecast push status --cache NAME`; when they are mended, `cachecast push "
        "resume --cache NAME --failed` tries again; else `cachecast push cancel --cache NAME`"
    ),
    "not-pushed": "run `cachecast push run --cache NAME --as-of TIME`; it resumes where it stopped",
    "unproven": "`cachecast push cancel --cache NAME --unpin` stops what is undone and gives up the pins",
    "above-high-watermark": (
        "free the disk, or restart a server that does not purge; compare `capacity` and `watermarks` with "
        "the server's"
    ),
    "pins-over-limit": (
        "correct `capacity` or [push] journal; if both are right, `cachecast push cancel --cache NAME "
        "--unpin`, and the next plan pins what fits"
    ),
    "steward-silent": (
        "restart its service; if it is not wanted any more, stop the service and delete the cache's file "
        "in [steward] state"
    ),
    "steward-outrun": (
        "nothing after a burst; if it happens each day, lower the low watermark of server and settings"
    ),
    "steward-blind": (
        "start the collector, add the four lines of docs/steward.md to the server and restart it, or run the "
        "steward as the server's user: the text says which"
    ),
    "steward-implausible": (
        "compare `capacity` and `watermarks` with the server's; if they agree and the cache really is too "
        "full, restart the steward with --force"
    ),
    "steward-impostor": (
        "find out who sends to the collector in the cache's name, and let the firewall admit the caches alone"
    ),
    "steward-cache": "start the server, mount its disks, and let the steward read its namespace",
    "steward-lists": (
        "correct [push] journal, or restore its database; before the first push of a site make one: "
        "`cachecast push resume --cache NAME`"
    ),
    "steward-tables": "mend the network or the store; its figures reach the tables then",
    "steward-order": (
        "start MLflow if it is unavailable; else `cachecast promote --rollback`, or train, evaluate and "
        "promote"
    ),
    "steward-clock": "set both clocks by NTP, then restart the steward",
    "queue-doubted": "compare its answer with the broker's own pages, and mend what `cachecast queue` reads",
    "collector-full": "pull the captures with --new-only, or raise [collect] quota",
}
"""NAME and TIME stand for the cache and the decision time."""
WITHHELD: Final = (
    "evaluate and promote: `cachecast promote --why` says what is missing; `cachecast push run --cache "
    "NAME --as-of TIME --unproven` carries it out nevertheless"
)
UNTIL_THEN: Final = (
    "wait; for plans until then, once there are some days of records, set `[mlflow] serve = "
    '["champion", "candidate"]` and run `cachecast cycle --train`'
)
"""Of plans that no promotion covers, and of a region without days enough to promote a model."""
