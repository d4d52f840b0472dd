"""Names have numbers in the order in which they came, whatever their characters."""

from __future__ import annotations

import random
import tracemalloc

from prefetch.steward.book import Names

CHARACTERS = ["a", "é", "\udc80", "/", "\U0001f600", ""]


def test_names_are_numbered_as_a_dictionary_would() -> None:
    chance, names, plain = random.Random(1), Names(), dict[str, int]()
    for _ in range(10_000):
        name = "".join(chance.choices(CHARACTERS, k=6)) + str(chance.randrange(500))
        assert names.find(name) == plain.get(name)
        assert names.add(name) == plain.setdefault(name, len(plain))
    assert [names[number] for number in range(len(names))] == list(plain)


def test_a_name_takes_little_more_than_its_text() -> None:
    tracemalloc.start()
    names = Names()
    for number in range(2**14):
        names.add(f"{number:0100}")
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(names) < 140
