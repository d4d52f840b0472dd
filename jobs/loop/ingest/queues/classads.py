"""ClassAds of HTCondor: those of `condor_q -long`, in old and new syntax, and values that are expressions.

HTCondor's own library reads them; it comes with its Python bindings, the extra `htcondor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType

from features.common.errors import InputError

EXTRA = "install cachecast[htcondor]"

_OLD = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_.]*\s*=")
_NEW = re.compile(r"\s*\[\s*[A-Za-z_][A-Za-z0-9_.]*\s*=")
_BLANK = re.compile(r"\n\s*\n")
_EXPRESSION = re.compile(r"/Expr\((.*)\)/", re.DOTALL)
_LONGEST = 10_000
"""Of an expression that is evaluated, in characters."""


@cache
def library() -> ModuleType | None:
    """HTCondor's ClassAd library, if it is installed."""
    try:
        return import_module("classad2")
    except ImportError:
        return None


def is_classads(text: str) -> bool:
    """Whether a text begins as ClassAds do; JSON never does."""
    return bool(_OLD.match(text) or _NEW.match(text))


def ads(text: str, source: str) -> Iterator[object]:
    """The ads of `text` as objects, as `condor_q -json` has them; one that cannot be read stays its text.

    Raises InputError without the library.
    """
    known = library()
    if known is None:
        raise InputError(f"{source} holds ClassAds; {EXTRA}, or give the output of condor_q -json")
    if _OLD.match(text):
        return (_old(known, block) for block in _BLANK.split(text) if block.strip())
    return _new(known, text)


def _old(known: ModuleType, block: str) -> object:
    """The ad of a block of lines. The library stops without a word at a line that it cannot read."""
    try:
        ad = known.parseOne(block, known.ParserType.Old)
    except (ValueError, known.ClassAdException):
        return block
    names = {line.partition("=")[0].strip().lower() for line in block.splitlines() if line.strip()}
    return _object(known, ad) if {name.lower() for name in ad} >= names else block


def _new(known: ModuleType, text: str) -> Iterator[object]:
    parsed = known.parseAds(text, known.ParserType.New)
    n = 0
    try:
        for ad in parsed:
            n += 1
            yield _object(known, ad)
    except (ValueError, known.ClassAdException):
        yield f"no ClassAd after {n} of them; nothing after it is read"


def _object(known: ModuleType, ad: Mapping[str, object]) -> dict[str, object]:
    return {name: _plain(known, value) for name, value in ad.items()}


def _plain(known: ModuleType, value: object) -> object:
    if isinstance(value, known.ExprTree):
        return f"/Expr({value})/"
    if isinstance(value, list):
        return [_plain(known, one) for one in value]
    return value if isinstance(value, str | int | float) and not isinstance(value, known.Value) else None


def is_expression(value: object) -> bool:
    """Whether a value of an ad as JSON is an expression."""
    return isinstance(value, str) and value.startswith("/Expr(")


def value_of(name: str, ad: Mapping[str, object]) -> object:
    """The value of `name` in `ad`, an object with names in lower case; None for undefined or error.

    An expression is evaluated where the library is there, by those attributes that are none, so that ads
    made for that cannot take long.
    """
    value = ad.get(name)
    known = library()
    if not is_expression(value):
        return value
    stated = _EXPRESSION.fullmatch(str(value))
    if known is None or stated is None or len(stated[1]) > _LONGEST:
        return None
    try:
        expression = known.ExprTree(stated[1])
        named = {word.lower() for word in re.findall(r"[A-Za-z_]\w*", stated[1])} & ad.keys()
        plain = {one: ad[one] for one in named if _is_literal(ad[one])}
        return _plain(known, expression.eval(known.ClassAd(plain)))
    except (ValueError, TypeError, known.ClassAdException):
        return None


def _is_literal(value: object) -> bool:
    return isinstance(value, str | int | float) and not is_expression(value) and len(str(value)) <= _LONGEST
