"""The pages of the docs: their size, and the words of the glossary."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {str(path.relative_to(DOCS)): path.read_text() for path in DOCS.rglob("*.md")}
GLOSSARY = PAGES["glossary.md"]
WORDS = re.findall(r"^\| (?!word \|)([a-z].*?) \| (.*?) \| (.*?)\|$", GLOSSARY, re.M)
OTHERS = "".join(page for name, page in PAGES.items() if name != "glossary.md")
WORD = re.compile(r"\S*\w\S*")
MAIN = {"README", "tutorial", "worth-it", "operate", "architecture"} | {"train", "evaluate", "plan"}
MAIN |= {"push", "steward"}


def uses(word: str) -> re.Pattern[str]:
    return re.compile(r"\b" + r"\s+".join(map(re.escape, word.split())) + r"s?\b", re.IGNORECASE)


def test_the_pages_are_few_and_short() -> None:
    """A word has a letter or a digit: the bars of tables are none. The benchmarks are what benches print."""
    written = {name: len(WORD.findall(page)) for name, page in PAGES.items() if name != "benchmarks.md"}
    assert sum(written.values()) <= 50_000
    assert {name: n for name, n in written.items() if name.startswith("adr/") and n > 250} == {}


def test_the_glossary_has_each_word_once_in_order() -> None:
    words = [word for word, _, _ in WORDS]
    assert len(words) >= 40
    assert words == sorted(set(words), key=str.lower)


@pytest.mark.parametrize(("word", "meaning", "never"), WORDS, ids=lambda text: text.split(",")[0])
def test_a_word_has_one_sentence_is_used_and_has_no_second_name(word: str, meaning: str, never: str) -> None:
    assert not re.search(r"[.;]( |$)", meaning)
    assert uses(word).search(OTHERS)
    second = [name for name in never.split(", ") if name.strip() and uses(name.strip()).search(OTHERS)]
    assert second == []


@pytest.mark.parametrize("page", sorted(MAIN))
def test_the_main_pages_lead_to_the_glossary(page: str) -> None:
    assert "glossary.md" in PAGES[f"{page}.md"]
