"""The operator's pages by tables written here, and by tables that are missing, damaged or lie."""

import datetime as dt
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from access_rows import accesses
from html_page import Page
from operator_site import BAD_WORDS, HOSTILE, environment, figures, lfn, loaded, planted

from features.common.errors import printable
from features.common.times import parse_as_of
from features.results import ARRIVALS, PROMOTIONS
from features.schema import ACCESSES, CONTENTS, PLANS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.plan import plan
from jobs.loop.plan.cache_state import CacheAtMoment
from jobs.operator.operate import status
from jobs.operator.overview.page import Renderer
from jobs.operator.overview.state import Sources, Unknown
from prefetch.placement.pages import PageRequest
from prefetch.plan.rules import Objective

NOW_S = parse_as_of("2026-03-01T04:10:00Z")
ELEMENTS = {
    *("html", "head", "meta", "title", "link", "body", "a", "header", "main", "footer", "nav", "section"),
    *("article", "h1", "h2", "h3", "h4", "p", "ul", "li", "dl", "dt", "dd", "strong", "span", "br", "code"),
    *("time", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"),
    *("svg", "rect", "line"),
    *("form", "label", "input", "button", "text", "div"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    planted(folder, now_s=NOW_S)
    return folder


@pytest.fixture
def folder(site: Path, tmp_path: Path) -> Path:
    """A copy of the site that may be damaged."""
    return Path(shutil.copytree(site, tmp_path / "site"))


@pytest.fixture
def settings(folder: Path) -> Settings:
    return loaded(folder)


def marked(settings: Settings, request: PageRequest = PageRequest(), *, now_s: int = NOW_S) -> Page:  # noqa: B008
    """A page of a new renderer; it has no element or attribute but ours, whatever is asked."""
    page = Page(Renderer(settings, began_s=NOW_S - 60).page(request, {}, now_s=now_s))
    assert set(page.seen) <= ELEMENTS and not page.open
    assert not {name for name in page.attributes if name.startswith("on") or name in ("style", "srcdoc")}
    return page


def test_a_region_is_shown_as_the_commands_tell_it(settings: Settings) -> None:
    late = {"source": "rucio_traces", "rows": 3, "rejected_share": 0.0, "complete": False}
    late |= {"why": "3 reads in 1h, where 40 are usual"}
    Tables(settings.tables.root).replace_rows(ARRIVALS, [late], MomentKey.at(NOW_S - 600, "default"))
    text = marked(settings).text
    answer = status.run(settings, now_s=NOW_S)
    assert "incomplete" in {alarm.name for alarm in answer.alarms}
    for alarm in answer.alarms:
        words, remedy = (of.replace("`", "") for of in (alarm.text, alarm.remedy))
        assert f"{alarm.severity} {alarm.name} ({alarm.about}): {words}. To do: {remedy}." in text
    for words in (
        "93 GB of 100 GB (93 %), 93 files; inventory of 2026-03-01 04:00 UTC (10 min ago)",
        "low 90 % (90 GB), high 95 % (95 GB)",
        "on; last report 2026-03-01 04:09 UTC (20 s ago), started 2026-03-01 02:10 UTC (2 h ago)",
        "auto; follows the order s3fifo",
        "Learned order of cachecast-default/2, since 2026-03-01 03:10 UTC (60 min ago)",
        "92 GB; evicts above 93 GB; above 95 GB the cache purges by itself",
        "7 GB since its start, by its own count",
        "next in the order s3fifo 10 files 10 GB",
        "92 GB of 100 GB (92 %), by its steward",
        "last 24 hours 8 GB 75.0 % 2 GB last 7 days 12 GB 50.0 % 6 GB",
        "Evicted 40 files, 40 GB since its start; 1 file could not be evicted",
        "by its own count, which it writes each hour",
        f"2026-03-01 04:08 UTC (90 s ago) {lfn(3)} 1 GB a plan evicts it",
        "2026-03-01 s3fifo 10 GB 13 GB 3 GB",
        f"Champion of default {status.champion_line(answer)}",
        "cachecast-default/2; trained on what was known at 2026-02-28 04:00 UTC (24 h ago)",
        "saves 2 TB per day against lru",
        "May evict no model",
        f"order of eviction: {BAD_WORDS}",
        "Off: no steward reports here. Without one the cache evicts by itself, as plain LRU. Policy",
        "none heard by this service",
    ):
        assert words in text, words


def test_reads_of_which_it_is_unknown_what_was_fetched_have_no_ratio(settings: Settings) -> None:
    at = dt.datetime.fromtimestamp(NOW_S - 600, dt.UTC)
    reads = accesses([{"accessed_at": at}], cache="xc2", source="xcache_gstream")
    Tables(settings.tables.root).replace_arrow(ACCESSES, reads)
    assert "last 24 hours 0 B – 0 B last 24 hours 1 more reads, of which" in marked(settings).text


@pytest.mark.parametrize("action", ["", "pin", "evict"])
def test_the_items_of_a_plan_are_those_of_the_table(settings: Settings, action: str) -> None:
    rows = Tables(settings.tables.root).read_arrow(PLANS, owner="xc1").to_pylist()
    items = sorted(
        (row for row in rows if action in ("", row["action"])), key=lambda row: (row["action"], row["rank"])
    )
    assert items
    text = marked(settings, PageRequest("xc1", action)).text
    for name in {row["action"] for row in items}:
        mine = [row for row in items if row["action"] == name]
        assert f"{name}: items 1 to {min(len(mine), 50 if action else 10)} of {len(mine)} items" in text
        assert f"{name} {len(mine)} file" in text
        for row in mine[:3]:
            assert f"no. {row['rank']} {printable(row['name'])} 1 GB" in text


@pytest.mark.parametrize("i", [91, 3, 100, 119])
def test_a_file_is_explained_as_by_the_command(settings: Settings, i: int) -> None:
    tables = Tables(settings.tables.root)
    explained = plan.explain_item(plan.judge(CacheAtMoment.last_planned(settings, "xc1")), item=lfn(i))
    text = marked(settings, PageRequest("xc1", item=lfn(i))).text
    assert f"{explained.action or 'Not planned'}: {' '.join(explained.because.split())}" in text
    assert f"no. {explained.rank}" in text or f"{explained.rank} of {explained.of} files" in text
    planned = tables.read_arrow(PLANS, owner="xc1").to_pylist()
    assert [row["action"] for row in planned if row["name"] == lfn(i)] == (
        [explained.action] if explained.action else []
    )


@pytest.mark.parametrize(("objective", "unit"), [("bytes", "MB expected to be read"), ("requests", "reads")])
def test_what_a_file_is_worth_is_in_the_unit_of_the_objective(
    settings: Settings, objective: str, unit: str
) -> None:
    by = settings.model_copy(
        update={"plan": settings.plan.model_copy(update={"objective": Objective(objective)})}
    )
    assert re.search(rf"Value [0-9.]+ {unit}", marked(by, PageRequest("xc1", item=lfn(91))).text)


def test_hostile_names_are_text(settings: Settings) -> None:
    for request in (
        PageRequest(),
        PageRequest("xc1", "pin"),
        PageRequest("xc1", item=lfn(100)),
        PageRequest("xc1", item=HOSTILE),
    ):
        page = Renderer(settings, began_s=0).page(request, {}, now_s=NOW_S)
        assert "<script" not in page and "<img" not in page and "\u202e" not in page
        marked(settings, request)
    assert "<script>alert(" in marked(settings, PageRequest("xc1", item=lfn(100))).text


def test_no_secret_is_shown(folder: Path) -> None:
    secrets = ("operators-token-of-the-tests", "salt-of-the-users", "pass-4711")
    settings = Settings.load(
        folder / "conf",
        env=environment(folder)
        | {"CACHECAST_SERVE__TOKEN": secrets[0], "CACHECAST_USERS__SALT": secrets[1]}
        | {"CACHECAST_PUSH__JOURNAL": f"postgresql+psycopg://ops:{secrets[2]}@127.0.0.1:1/none"},
    )
    page = Renderer(settings, began_s=0).page(PageRequest(), {}, now_s=NOW_S)
    assert "the push journal does not answer" in page
    assert not [secret for secret in secrets if secret in page]


def damage(folder: Path, what: str) -> None:
    """Damage one source of the site."""
    tables, settings = folder / "tables", loaded(folder)
    if what == "no tables":
        shutil.rmtree(tables)
    elif what == "contents":
        for path in (tables / CONTENTS.name).rglob("*.parquet"):
            path.write_bytes(b"no parquet")
    elif what == "commit":
        for path in (tables / PROMOTIONS.name / "_commits").iterdir():
            path.chmod(0o600)
            path.write_bytes(b'{"number": 1, "partitions": [{"key": 7}]}')
    elif what == "journal":
        with closing(sqlite3.connect(folder / "journal.db")):
            (folder / "journal.db").write_bytes(b"no database" * 1000)
    elif what == "figures":
        settings.steward.figures("xc1").write_text('{"cache": "xc1", "at_s": NaN}')
    elif what == "endless figures":
        settings.steward.figures("xc1").unlink()
        settings.steward.figures("xc1").symlink_to("/dev/zero")


def test_an_unexpected_error_is_logged_once_until_the_source_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails() -> int:
        raise ZeroDivisionError("of a damaged file")

    sources = Sources(began_s=0)
    for _ in range(2):
        answer = sources.known("plan xc1", fails)
        assert isinstance(answer, Unknown) and "damaged" not in answer.why
    (record,) = caplog.records
    assert "plan xc1" in caplog.text and "Traceback" in caplog.text and "of a damaged file" in caplog.text
    assert record.levelname == "ERROR"
    assert sources.known("plan xc1", lambda: 3) == 3
    sources.known("plan xc1", fails)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no tables", "nothing was pulled yet"),
        ("contents", "is damaged: "),
        ("commit", "is damaged"),
        ("journal", "the push journal does not answer"),
        ("figures", "cannot read what the steward reports in xc1.json"),
        ("endless figures", "cannot read what the steward reports in xc1.json"),
    ],
)
def test_what_cannot_be_read_is_unknown_since_and_the_rest_is_shown(
    folder: Path, what: str, words: str
) -> None:
    renderer = Renderer(loaded(folder), began_s=NOW_S - 3600)
    renderer.page(PageRequest(), {}, now_s=NOW_S - 300)
    damage(folder, what)
    text = Page(renderer.page(PageRequest(), {}, now_s=NOW_S)).text
    assert re.search(rf"Unknown since 2026-03-01 04:05 UTC \(5 min ago\): .*{re.escape(words)}", text), text
    assert "Cache xc2" in text
    if "figures" not in what:
        assert "follows the order s3fifo" in text
    if what in ("contents", "figures"):
        assert "trained on what was known at" in text
    for request in (PageRequest("xc1"), PageRequest("xc1", item=lfn(3)), PageRequest("xc2")):
        renderer.page(request, {}, now_s=NOW_S)


def test_a_steward_that_is_silent_or_lies_is_shown_so(settings: Settings) -> None:
    path = settings.steward.figures("xc1")
    figures(NOW_S - 600).write(path)
    text = marked(settings).text
    assert "Silent since 2026-03-01 03:59 UTC (10 min ago)" in text and "(93 %), by its inventory" in text
    figures(NOW_S, used_bytes=93 * 10**9).write(path)  # as the inventory says
    assert "93 GB of 100 GB (93 %), by its steward" in marked(settings).text
    figures(NOW_S + 86400, used_bytes=-(2**62), saved_bytes=2**62, following=BAD_WORDS).write(path)
    text = marked(settings).text
    assert "in 23 h: a clock is wrong" in text and BAD_WORDS in text
    figures(NOW_S, alarms={BAD_WORDS: BAD_WORDS}).write(path)
    assert f"{BAD_WORDS} (xc1): {BAD_WORDS}. To do: see docs/troubleshoot.md." in marked(settings).text


def test_an_alarm_links_to_its_section_and_one_that_is_made_up_does_not(settings: Settings) -> None:
    figures(NOW_S, alarms={"steward-clock": "ahead", BAD_WORDS: "x"}).write(settings.steward.figures("xc1"))
    serve = settings.serve.model_copy(update={"docs": "https://docs.example.org/cachecast/"})
    page = Renderer(settings.model_copy(update={"serve": serve}), began_s=0).page(
        PageRequest(), {}, now_s=NOW_S
    )
    links = re.findall(r'href="(https:[^"]*)"', page)
    assert "https://docs.example.org/cachecast/troubleshoot.html#steward-clock" in links
    assert len(links) == page.count("To do: ") - 1
    assert "<code>cachecast " in page and "`" not in page
