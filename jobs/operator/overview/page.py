"""The pages and what they show of plans, as HTML without script: names escaped, numbers with their units."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup, escape

from features.common.errors import InputError, printable
from features.common.times import as_of_label, parse_as_of
from features.schema import ACCESSES, CONTENTS, PLANS, PREDICTIONS, QUEUE
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row, count, percent, text
from jobs.loop.plan.cache_state import CacheAtMoment
from jobs.loop.plan.plan import JudgedCache, explain_item, judge
from jobs.operator.operate.status import champion_line
from jobs.operator.overview.state import Histories, Look, Sources, Step, Unknown
from jobs.operator.placement.current_plans import current_plan
from prefetch.actions import ACTIONS, Action
from prefetch.placement.pages import KEPT_S, REFRESH_S, LastHeartbeat, PageRequest
from prefetch.plan.explain import Explanation

ITEMS_SHOWN: Final = 50  # items of one action on one page
FIRST_SHOWN: Final = 10  # items of each action where all actions are shown
_ITEM_COLUMNS = ("action", "rank", "name", "size_bytes", "cost_bytes", "probability", "reason")
_UNITS: Final = ((172_800, 86_400, "days"), (7_200, 3_600, "h"), (120, 60, "min"), (0, 1, "s"))
_MOST_AHEAD_S: Final = 60
_BAR: Final = 400.0
_STEPS, _HIGH = 240, 40  # sizes of drawings, in units of their own


@dataclasses.dataclass(frozen=True)
class Listed:
    """The items of a plan. `sums`: files and bytes by action; `rows`: those that are shown, by action.

    `n_items`: of the action that was asked for, or of all.
    """

    sums: Sequence[Row]
    rows: Mapping[Action, Sequence[Row]]
    n_items: int

    @property
    def n_shown(self) -> int:
        return sum(map(len, self.rows.values()))


@dataclasses.dataclass(frozen=True)
class Why:
    """Why a file is planned or not, at the time `as_of_s` of the plan; or that it is not known."""

    as_of_s: int
    answer: Explanation | str


class Plans:
    """The plans of the caches of `settings`; the last judgement is kept for the next question."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._tables = settings, Tables.of(settings)
        self._judged: tuple[object, JudgedCache] | None = None

    def listed(self, request: PageRequest, now_s: int) -> Listed:
        """The plan of a cache at `now_s`."""
        plan = current_plan(self._tables, request.cache, now_s).select(_ITEM_COLUMNS)
        sums = plan.group_by("action").aggregate(
            [([], "count_all"), ("size_bytes", "sum"), ("cost_bytes", "sum")]
        )
        by_action = {row["action"]: row for row in sums.to_pylist()}
        actions = [action for action in ACTIONS if action in by_action]
        rows = dict[Action, list[Row]]()
        for action in (action for action in actions if request.action in ("", action)):
            items = plan.filter(pc.equal(plan["action"], pa.scalar(action))).sort_by("rank")
            first, n_items = (request.after, ITEMS_SHOWN) if request.action else (0, FIRST_SHOWN)
            rows[action] = items.slice(first, n_items).to_pylist()
        n_items = sum(by_action[action]["count_all"] for action in rows)
        return Listed([by_action[action] for action in actions], rows, n_items)

    def why(self, request: PageRequest) -> Why:
        """About a file, by the newest plan, judged again from the tables that it was made from."""
        used = (PLANS, CONTENTS, PREDICTIONS, ACCESSES, QUEUE)
        key = (request.cache, *(self._tables.head(table).number for table in used))
        if self._judged is None or self._judged[0] != key:
            self._judged = None
            self._judged = (key, judge(CacheAtMoment.last_planned(self._settings, request.cache)))
        judged = self._judged[1]
        try:
            answer: Explanation | str = explain_item(judged, item=request.item)
        except InputError as error:
            answer = str(error)
        return Why(judged.moment.as_of_s, answer)


class Renderer:
    """The pages about the caches and models of `settings`, for a browser or as a file.

    `began_s`: since when a source that never answered is unknown, s since 1970.
    """

    def __init__(self, settings: Settings, *, began_s: float) -> None:
        self._settings, self._sources = settings, Sources(began_s)
        self._plans, self._histories = Plans(settings), Histories(settings)

    def page(self, request: PageRequest, heard: Mapping[str, LastHeartbeat], *, now_s: int) -> str:
        """The page that answers `request` at `now_s`; `heard`: heartbeats by cache."""
        if not request.cache:
            return self._overview(heard, now_s, style="", is_still=request.is_still)
        plans, known, cache, self._sources.now_s = self._plans, self._sources.known, request.cache, now_s
        listed = known(f"plan {cache}", lambda: plans.listed(request, now_s))
        why = known(f"why {cache}", lambda: plans.why(request)) if request.item else None
        values = {"asked": request, "listed": listed, "why": why, "title": cache, "step": ITEMS_SHOWN}
        values |= {"objective": self._settings.plan.objective}
        return _template("plan.html").render(values, up="../../", now_s=now_s, style="")

    def file(self, *, now_s: int) -> str:
        """The page of the region with its style in it, without links to a service and its heartbeats."""
        return self._overview({}, now_s, style=Markup(_read("style.css")))  # noqa: S704  our own file

    def _overview(
        self, heard: Mapping[str, LastHeartbeat], now_s: int, *, style: str, is_still: bool = True
    ) -> str:
        tables = Tables.of(self._settings)
        region = Look(self._settings, tables, self._sources, self._histories, now_s).state(heard)
        values = {"state": region, "up": "", "title": region.region_name, "champion_line": champion_line}
        values |= {"docs": self._settings.serve.docs.rstrip("/"), "is_still": is_still}
        return _template("overview.html").render(values, now_s=now_s, style=style)


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # Without control characters, some of which reorder the text around them.
        finalize=lambda v: v if isinstance(v, Markup) or not isinstance(v, str) else _lines(v),
    )
    environment.tests["unknown"] = lambda value: isinstance(value, Unknown)
    environment.globals |= {
        "amount": amount,
        "files": lambda number: _whole(f"{count(number)} {'file' if number == 1 else 'files'}"),
        "percent": lambda share, digits=0: "–" if share is None else _whole(percent(share, digits)),
        "count": lambda number: _whole(count(number)),
        "kept_s": f"{KEPT_S:.0f}",
        "refresh_s": REFRESH_S,
        "when": when,
        "moment": moment,
        "bar": bar,
        "steps": steps,
        "with_code": with_code,
    }
    return environment.get_template(name)


def _read(name: str) -> str:
    return resources.files("jobs.operator.overview").joinpath(name).read_text(encoding="utf-8")


def _lines(value: str) -> str:
    parts = re.split("([\n\u00a0])", value)
    return "".join(part if part in ("\n", "\u00a0") else printable(part) for part in parts)


def with_code(sentence: str) -> Markup:
    """A sentence whose words between backticks are shown as code."""
    parts = re.split("`([^`]*)`", _lines(sentence))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)
    )


def amount(n_bytes: float | None) -> str:
    return _whole(text("bytes", n_bytes))


def _whole(number: str) -> str:
    """A number that is not broken from its unit at the end of a line."""
    return number.replace(" ", "\u00a0")


def when(at: float | str | None, now_s: int) -> Markup:
    """A time in UTC, and how long ago it is; `at`: s since 1970, or a label."""
    if at is None:
        return Markup("never")
    try:
        at_s = parse_as_of(at) if isinstance(at, str) else int(at)
        passed_s = now_s - at_s
        ago = f"{_duration(max(0, passed_s))} ago"
        if passed_s < -_MOST_AHEAD_S:
            ago = f"in {_duration(-passed_s)}: a clock is wrong"
        return Markup("{} ({})").format(moment(at_s), ago)
    except (InputError, OverflowError, ValueError, OSError):
        return escape(printable(str(at)))


def moment(at_s: int) -> Markup:
    label = as_of_label(at_s)
    minute = f"{label[:10]} {label[11:16]} UTC"
    return Markup('<time datetime="{}">{}</time>').format(label, minute)


def _duration(seconds: int) -> str:
    unit_s, unit = next(unit[1:] for unit in _UNITS if seconds >= unit[0])
    return f"{seconds // unit_s} {unit}"


def bar(share: float | None, low: float, high: float, label: str) -> Markup:
    """How full a cache is, with its watermarks by name; the label says the same in words."""
    if share is None or not math.isfinite(share):
        return Markup("")
    width, low_at, high_at = (_BAR * min(max(part, 0.0), 1.0) for part in (share, low, high))
    return Markup(
        '<svg class="bar" role="img" aria-label="{}" viewBox="0 0 490 44">'
        '<rect class="room" x="1" y="2" width="{:.1f}" height="18"/>'
        '<rect class="held{}" x="1" y="2" width="{:.1f}" height="18"/>'
        '<line x1="{:.1f}" x2="{:.1f}" y1="0" y2="24"/><line x1="{:.1f}" x2="{:.1f}" y1="0" y2="24"/>'
        '<text class="low" x="{:.1f}" y="40">low {:.0f} %</text>'
        '<text x="{:.1f}" y="40">high {:.0f} %</text></svg>'
    ).format(
        *(label, _BAR, " over" if share > high else "", width, low_at, low_at, high_at, high_at),
        *(low_at - 3, 100 * low, high_at + 3, 100 * high),
    )


def steps(history: Sequence[Step], label: str) -> Markup:
    """A bar of the bytes read per step, the part that was not on disk dark; the label says it in words."""
    most = max((hour.read_bytes for hour in history), default=0)
    width = _STEPS / max(1, len(history))
    bars = [
        Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            name, k * width, _HIGH * (1 - n_bytes / most), 0.8 * width, _HIGH * n_bytes / most
        )
        for k, hour in enumerate(history)
        for name, n_bytes in (("read", hour.read_bytes), ("wan", hour.read_bytes - hour.hit_bytes))
        if most and n_bytes
    ]
    return Markup(
        '<svg class="steps" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}'
        '<line x1="0" x2="{}" y1="{}" y2="{}"/></svg>'
    ).format(label, _STEPS, _HIGH + 1, Markup("").join(bars), _STEPS, _HIGH, _HIGH)
