"""Records as a broken or hostile sender may make them: real lines with parts replaced, cut or mixed up."""

import random
import re

_NUMBERS = ("9223372036854775807", "-9223372036854775808", "1e308", "NaN", "-1", "0", "99999999999999999999")
_WORDS = (
    "\\ud800",
    "\\u0000",
    "\0",
    "'",
    '"',
    "\\",
    "../..",
    "9" * 400,
    "é" * 300,
    "[" * 400,
    "",
    " ",
    "\t",
    ",",
)


def damaged(content: bytes, n_lines: int, seed: int) -> bytes:
    """`n_lines` lines (a first line that names columns stays), each a line of `content` with damage."""
    chance = random.Random(seed)
    lines = [line for line in content.split(b"\n") if line.strip()]
    is_headed = not lines[0].startswith((b"{", b"[", b"@@"))
    head, body = lines[: int(is_headed)], lines[int(is_headed) :] or lines
    return b"\n".join([*head, *(_line(chance.choice(body), chance) for _ in range(n_lines))]) + b"\n"


def _line(line: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(0, 2)):
        line = chance.choice((_other_number, _other_word, _cut, _noise, _twice))(line, chance)
    return line.replace(b"\n", b" ")


def _other_number(line: bytes, chance: random.Random) -> bytes:
    return _replaced(rb"-?[0-9]+(?:\.[0-9]+)?", line, chance.choice(_NUMBERS), chance)


def _other_word(line: bytes, chance: random.Random) -> bytes:
    return _replaced(rb"[A-Za-z/._-]{3,}", line, chance.choice(_WORDS), chance)


def _replaced(pattern: bytes, line: bytes, by: str, chance: random.Random) -> bytes:
    places = list(re.finditer(pattern, line))
    if not places:
        return line
    place = chance.choice(places)
    return line[: place.start()] + by.encode() + line[place.end() :]


def _cut(line: bytes, chance: random.Random) -> bytes:
    return line[: chance.randint(0, len(line))]


def _noise(line: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(line))
    return line[:at] + chance.randbytes(3) + line[at + 2 :]


def _twice(line: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(line))
    return line[:at] + line
