"""Whether a cache, a steward or more disk is worth it for a site: bytes, hours and money, with bounds."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from features.common import files
from features.common.arrays import IntArray
from features.common.errors import InputError
from features.common.progress import Advance
from features.common.times import DAY_S, day_label
from features.common.units import MOST_BYTES, format_bytes
from features.results import LRU, STEWARD
from jobs.ground.settings.tree import Settings
from jobs.ground.text import as_row, percent
from jobs.loop.traces import KNOWN_AT
from jobs.pages.page import Figure, Section, page
from jobs.pages.write import telling
from jobs.studies.simulate import study_plots
from jobs.studies.simulate.accesses import Accesses
from jobs.studies.simulate.replay_trace import steward_policies
from models.evaluation.metrics import BOUNDED_DAYS, Interval, few_days, mean_interval
from replay.access_context import CONTEXT
from replay.comparison import BOUND, Candidates, Row, compare
from replay.curve import Curve, lru_curve
from replay.read import LoadedTrace
from replay.study.benefit import BenefitModel, core_hours_per_byte
from replay.trace import window

TB, DAYS_PER_YEAR = 10**12, 365
LEAST_PAST_S = 7 * DAY_S  # left to learn from, where counting begins before the middle of a trace
GRID = 40  # capacities at which the page draws LRU
_CAPTION = "Bytes fetched per day by LRU at every capacity, and by the options."
_NOTE = (
    "Saved is against LRU at the capacity asked for. The true value lies above the lower bound with 95 % "
    "probability, and below the upper one with 95 %."
)
_MOST = 1e15  # of money or milliseconds
_LEARNING, _STEPS = 15, 20  # steps of the progress, of about the same time, to estimate what is left


@dataclasses.dataclass(frozen=True)
class SiteFacts:
    """What only the site knows; None: what follows from it is left out. Money in any one currency.

    `rtt_ms`: to the origins; `wan_tb`: per TB fetched; `core_hour`; `disk_tb_year`; `run_year`: of a steward.
    """

    rtt_ms: float | None = None
    wan_tb: float | None = None
    core_hour: float | None = None
    disk_tb_year: float | None = None
    run_year: float | None = None

    def __post_init__(self) -> None:
        """Raise InputError for what is no amount, or so large that sums of it are none."""
        for amount in dataclasses.astuple(self):
            if amount is not None and not 0 <= amount <= _MOST:
                raise InputError(f"prices and the round trip are from 0 to {_MOST:g}, not {amount:g}")


@dataclasses.dataclass(frozen=True)
class Option:
    """What could be done, per day of the counted days; `saved_…` is against LRU at the capacity asked for.

    `lower` and `upper`: bounds of 95 % each, None for too few days. `core_hours`: that jobs wait less;
    `money_per_year`: what is saved less what it costs.
    """

    option: str
    capacity_bytes: int
    byte_hit_ratio: float
    wan_bytes_per_day: float
    saved_bytes_per_day: float | None
    lower_bytes_per_day: float | None
    upper_bytes_per_day: float | None
    core_hours_per_day: float | None
    money_per_year: float | None


@dataclasses.dataclass(frozen=True)
class Assumption:
    assumed: str
    change: str


@dataclasses.dataclass(frozen=True)
class Worth:
    """The verdict, what follows, options, assumptions; `curve`: LRU's bytes fetched per day by capacity."""

    verdict: str
    findings: tuple[str, ...]
    options: tuple[Option, ...]
    assumptions: tuple[Assumption, ...]
    first_day: str
    last_day: str
    curve: tuple[tuple[int, float], ...]
    notes: tuple[str, ...]


def run(
    settings: Settings,
    accesses: Accesses,
    facts: SiteFacts,
    *,
    capacity_bytes: int,
    more: float,
    on_progress: Advance,
) -> Worth:
    """What LRU, a steward and `more` times the disk save at `capacity_bytes`, counted from the first day.

    A steward learns from before (or the first half). Raises InputError, StaleInputError.
    """
    if not 0 < capacity_bytes <= more * capacity_bytes <= MOST_BYTES:
        raise InputError(
            f"{more:g} times {format_bytes(capacity_bytes)} is no larger cache: give --capacity above 0, and "
            f"--more from 1 to what makes {format_bytes(MOST_BYTES)} of it"
        )
    on_progress(0, _STEPS, "reading")
    loaded = accesses.load(settings, keep=CONTEXT if accesses.trace else (*CONTEXT, KNOWN_AT))
    from_s = _middle_s(loaded) if accesses.first_day_s is None else accesses.first_day_s
    case = _case(loaded, capacity_bytes, more, from_s=from_s, on_progress=on_progress)
    value = Value(settings.benefit.model, facts)
    options = tuple(_options(case, value))
    # From this day on enough days for bounds count; a day must come before it, to learn from.
    bounded_s = (int(loaded.trace.time_s[-1]) // DAY_S - BOUNDED_DAYS + 1) * DAY_S
    bounded_from = day_label(bounded_s) if int(loaded.trace.time_s[0]) <= bounded_s - DAY_S else None
    return Worth(
        verdict=verdict(capacity_bytes, case.n_days, options[3], facts, bounded_from=bounded_from),
        findings=tuple(_findings(case, options, value)),
        options=options,
        assumptions=tuple(_assumptions(case, value, settings)),
        first_day=day_label(from_s),
        last_day=day_label(int(loaded.trace.time_s[-1])),
        curve=tuple(case.drawn()),
        notes=loaded.notes,
    )


def _middle_s(loaded: LoadedTrace) -> int:
    """The start of the middle day, or earlier for bounds. Raises InputError if the trace has but one day."""
    first_s, last_s = int(loaded.trace.time_s[0]), int(loaded.trace.time_s[-1])
    middle_s = (first_s + last_s) // 2 // DAY_S * DAY_S
    bounded_s = (last_s // DAY_S - BOUNDED_DAYS + 1) * DAY_S
    from_s = bounded_s if first_s + LEAST_PAST_S <= bounded_s < middle_s else middle_s
    if from_s <= first_s:
        raise InputError("a steward learns from the past, and the trace has one day; take a longer one")
    return from_s


@dataclasses.dataclass(frozen=True, eq=False)
class _Case:
    """One trace and cache: its replays, the curve of LRU, and the bytes of the counted days."""

    capacity_bytes: int
    more_bytes: int
    rows: Mapping[str, Row]
    larger: Row
    curve: Curve

    @property
    def n_days(self) -> int:
        return int(self.rows[LRU].result.daily.day.size)

    @property
    def requested(self) -> int:
        return self.rows[LRU].result.bytes_requested

    def saved(self, wan_bytes: IntArray) -> Interval:
        """Bytes per day that are fetched less than by LRU at the capacity asked for."""
        return mean_interval(self.rows[LRU].result.daily.wan_bytes - wan_bytes)

    def same_as(self, saved_bytes_per_day: float | None) -> float | None:
        """The bytes of disk that LRU needs more to fetch so much less; infinite: it cannot. None: unknown."""
        if saved_bytes_per_day is None or saved_bytes_per_day <= 0:
            return None if saved_bytes_per_day is None else 0.0
        hit_bytes = self.rows[LRU].result.hit_bytes + round(saved_bytes_per_day * self.n_days)
        capacity = self.curve.capacity_for(byte_hit_ratio=hit_bytes / self.requested)
        return math.inf if capacity is None else float(max(0, capacity - self.capacity_bytes))

    def drawn(self) -> Iterator[tuple[int, float]]:
        """LRU's bytes fetched per day, from a quarter of the capacity to four times of it."""
        for size in np.geomspace(self.capacity_bytes / 4, self.capacity_bytes * 4, GRID).astype(np.int64):
            yield int(size), (1 - self.curve.byte_hit_ratio_at(int(size))) * self.requested / self.n_days


def _case(
    loaded: LoadedTrace, capacity_bytes: int, more: float, *, from_s: int, on_progress: Advance
) -> _Case:
    window(loaded.trace, from_s)
    larger = int(more * capacity_bytes)

    def learning(done: int, total: int, what: str) -> None:
        on_progress(1 + _LEARNING * done // total, _STEPS, f"learning, {what}")

    try:
        own = steward_policies(
            [STEWARD], loaded, [capacity_bytes], from_s=from_s, as_xcache=False, on_progress=learning
        )
    except InputError:
        raise InputError(
            "the accesses before --from are too few for a steward to learn from; take a longer trace, or ask "
            "`cachecast curve` what LRU and more disk save"
        ) from None
    candidates = [
        Candidates(capacity_bytes, {LRU: None, **own, BOUND: None}),
        Candidates(larger, {LRU: None}),
    ]
    mine, theirs = compare(
        loaded.trace,
        candidates,
        count_from_s=from_s,
        on_done=lambda done, _, name: on_progress(1 + _LEARNING + done, _STEPS, f"{name} replayed"),
    )
    curve = lru_curve(loaded.trace, count_from_s=from_s)
    return _Case(capacity_bytes, larger, mine.rows, theirs.rows[LRU], curve)


@dataclasses.dataclass(frozen=True)
class Value:
    model: BenefitModel
    facts: SiteFacts

    def hours(self, n_bytes: float | None) -> float | None:
        """Core hours that jobs wait less; None: the round trip, or the bytes, are unknown."""
        if self.facts.rtt_ms is None or n_bytes is None:
            return None
        _, missed, hit = core_hours_per_byte(np.array([self.facts.rtt_ms]), self.model)
        return float(missed[0] - hit[0]) * n_bytes

    def money(self, n_bytes: float | None) -> float | None:
        """Money per year that `n_bytes` per day are worth; None: no price that applies to them is known."""
        if n_bytes is None:
            return None
        hours = self.hours(n_bytes)
        parts = [
            None if self.facts.wan_tb is None else n_bytes / TB * self.facts.wan_tb,
            None if hours is None or self.facts.core_hour is None else hours * self.facts.core_hour,
        ]
        known = [part for part in parts if part is not None]
        return DAYS_PER_YEAR * sum(known) if known else None


def _options(case: _Case, value: Value) -> Iterator[Option]:
    lru, steward, bound = (case.rows[name].result for name in (LRU, STEWARD, BOUND))
    per_day = case.requested / case.n_days
    less = lru.wan_bytes / case.n_days - per_day
    yield Option("no cache", 0, 0.0, per_day, less, None, None, value.hours(less), value.money(less))
    disk = value.facts.disk_tb_year
    more_disk = None if disk is None else disk * (case.more_bytes - case.capacity_bytes) / TB
    for name, result, costs in (
        ("LRU", lru, 0.0),
        ("LRU, more disk", case.larger.result, more_disk),
        ("a steward", steward, value.facts.run_year),
        ("the bound", bound, None),
    ):
        saved = case.saved(result.daily.wan_bytes)
        worth = value.money(saved.mean)
        yield Option(
            name,
            case.more_bytes if result is case.larger.result else case.capacity_bytes,
            result.byte_hit_ratio,
            result.wan_bytes / case.n_days,
            saved.mean,
            saved.lower,
            saved.upper,
            value.hours(saved.mean),
            None if worth is None or costs is None else worth - costs,
        )


def verdict(
    capacity_bytes: int, n_days: int, steward: Option, facts: SiteFacts, *, bounded_from: str | None = None
) -> str:
    """Whether a steward is worth it, by its savings on `n_days`; `bounded_from`: the `--from` with bounds."""
    at, n = format_bytes(capacity_bytes), steward.saved_bytes_per_day or 0.0
    longer = f"give --from {bounded_from}" if bounded_from else "take a longer trace"
    if why := few_days(n_days):
        return f"At {at}, whether a steward saves more than LRU is unknown, {why}; {longer}."
    low, high = steward.lower_bytes_per_day or 0.0, steward.upper_bytes_per_day or 0.0
    bounds = f"bounds {format_bytes(low)} to {format_bytes(high)}"
    gain = f"{format_bytes(n)} of WAN traffic per day against LRU ({bounds})"
    if high <= 0:
        return f"No: at {at}, a steward costs {format_bytes(-n)} per day more than LRU."
    if low <= 0:
        return f"Not shown: at {at}, a steward saves {gain}, which may be chance."
    if steward.money_per_year is None or facts.run_year is None:
        return f"At {at}, a steward saves {gain}: more than chance."
    pays = "Yes" if steward.money_per_year > 0 else "No"
    net = f"{abs(steward.money_per_year):,.0f} per year {'more' if pays == 'Yes' else 'less'} than it costs"
    return f"{pays}: at {at}, a steward saves {gain}, worth {net}."


def _findings(case: _Case, options: Sequence[Option], value: Value) -> Iterator[str]:
    nothing, lru, more, steward, bound = options
    saved, read = -(nothing.saved_bytes_per_day or 0.0), nothing.wan_bytes_per_day
    yield (
        f"LRU saves {format_bytes(saved)} of the {format_bytes(read)} that jobs read per day "
        f"({percent(lru.byte_hit_ratio, 1)}); no policy of this size can save more than "
        f"{format_bytes(saved + (bound.saved_bytes_per_day or 0.0))}."
    )
    yield as_more_disk(steward, case.same_as)
    gained = format_bytes(more.saved_bytes_per_day or 0.0)
    yield f"LRU with {format_bytes(case.more_bytes)} saves {gained} per day more than LRU of this size."
    if steward.core_hours_per_day is not None:
        yield f"With the steward, jobs wait {steward.core_hours_per_day:.3g} core hours per day less."
    yield from _break_even(case, steward, value)


def as_more_disk(steward: Option, same_as: Callable[[float | None], float | None]) -> str:
    """What a steward saves as disk that LRU needs more for it; `same_as`: that of bytes saved per day."""
    mean, low, high = map(
        same_as, (steward.saved_bytes_per_day, steward.lower_bytes_per_day, steward.upper_bytes_per_day)
    )
    if (steward.saved_bytes_per_day or 0.0) < 0:
        return "LRU needs no more disk to fetch as little as the steward, which fetches more."
    bounds = "" if low is None else f" (bounds {_disk(low)} to {_disk(high)})"
    return f"More disk with which LRU fetches as little as the steward: {_disk(mean)}{bounds}."


def _break_even(case: _Case, steward: Option, value: Value) -> Iterator[str]:
    worth, costs = value.money(steward.saved_bytes_per_day), value.facts.run_year
    if costs is None or worth is None:
        return
    if worth <= 0:
        yield "No amount of traffic of this kind pays for a steward."
        return
    from_bytes = format_bytes(case.requested / case.n_days * costs / worth)
    yield f"A steward pays from {from_bytes} read per day on, with files and disk in proportion."


def _assumptions(case: _Case, value: Value, settings: Settings) -> Iterator[Assumption]:
    facts, rate = value.facts, settings.benefit.job_read_rate
    yield Assumption(
        f"{case.n_days} days count; what lies before warms the caches, and is learned from", "--from, --to"
    )
    yield Assumption("files are fetched whole, and a steward evicts at each read", "cachecast replay")
    yield Assumption(f"more disk is {case.more_bytes / case.capacity_bytes:g} times as much", "--more")
    yield Assumption(
        "no CPU hours: the round trip to the origins is not given"
        if facts.rtt_ms is None
        else f"origins are {facts.rtt_ms:g} ms away; a job reads {format_bytes(rate)} per second of CPU time",
        "--round-trip-ms; [benefit] job_read_rate, points",
    )
    prices = {
        "per TB of WAN traffic": (facts.wan_tb, "--price-wan"),
        "per core hour": (facts.core_hour, "--price-core-hour"),
        "per TB of disk and year": (facts.disk_tb_year, "--price-disk"),
        "per year to run a steward": (facts.run_year, "--price-steward"),
    }
    for what, (price, option) in prices.items():
        yield Assumption(f"no price {what}" if price is None else f"{price:g} {what}", option)


def _disk(n_bytes: float | None) -> str:
    if n_bytes is None:
        return "unknown"
    return format_bytes(n_bytes) if math.isfinite(n_bytes) else "out of reach"


def write(answer: Worth, out: Path, *, what: str) -> None:
    """Write the page of `answer` to `out`; `what`: the reads that it is about."""
    rows = [as_row(option) for option in answer.options]
    figure = Figure(study_plots.wan_against_capacity(answer.curve, rows), _CAPTION)
    sections = [
        Section("Options", _NOTE, [figure], telling(rows)),
        Section(
            "What was assumed, and how to change it",
            rows=[as_row(assumption) for assumption in answer.assumptions],
        ),
    ]
    html = page(
        title="Is it worth it?",
        subtitle="; ".join([f"{what}, {answer.first_day} to {answer.last_day}", *answer.notes]),
        answers=[answer.verdict, *answer.findings],
        sections=sections,
    )
    files.write(out, html)
