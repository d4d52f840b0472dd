"""ClassAds of HTCondor: those of `condor_q -long`, in old and new syntax, and values that are expressions.

HTCondor's own library reads them; it comes with its Python bindings, the extra `htcondor`. It recurses on
its own stack, so text of others goes to it only within bounds.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType

import numpy as np

from features.common.errors import InputError

EXTRA = "install cachecast[htcondor]"
_OLD = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_.]*\s*=")
_NEW = re.compile(r"\s*\[\s*[A-Za-z_][A-Za-z0-9_.]*\s*=")
_BLANK = re.compile(r"\n\s*\n")
_EXPRESSION = re.compile(r"/Expr\((.*)\)/", re.DOTALL)
_LONGEST = 10_000  # of an attribute without its quoted texts, and of an expression, in characters
_DEEPEST = 50
_QUOTED = re.compile(r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|(").*')
"""What is not closed ends with its line, so that none is looked through twice: of it the quote is left."""
_AMBIGUOUS = re.compile(r"""["']|//|/\*""")
"""Outside quoted texts: an open quote, a quoted name, a comment, none of which `condor_q` writes."""
_OPENING, _CLOSING = (np.frombuffer(brackets, np.uint8) for brackets in (b"([{", b")]}"))
_AT_ONCE = 2**24
_CALLED = re.compile(r"(?<!\w)[^\WA-Za-z_]*([A-Za-z_]\w*)\s*\(")
_QUICK = frozenset(
    (
        *("strcat", "string", "int", "real", "bool", "size", "substr", "toupper", "tolower", "strcmp"),
        *("stricmp", "join", "split", "member", "ifthenelse", "isundefined", "iserror", "isstring"),
        *("isinteger", "isreal", "isboolean", "islist", "floor", "ceiling", "round", "min", "max", "sum"),
        *("avg", "stringlistsize", "stringlistmember", "stringlistimember"),
    )
)
"""Functions that take no time, and whose value depends on nothing but the ad; others are undefined."""


@cache
def library() -> ModuleType | None:
    try:
        return import_module("classad2")
    except ImportError:
        return None


def is_classads(text: str) -> bool:
    return bool(_OLD.match(text) or _NEW.match(text))


def ads(text: str, source: str) -> Iterator[object]:
    """The ads of `text` as objects; one that cannot be read stays text. Raises InputError without library."""
    classad = library()
    if classad is None:
        raise InputError(f"{source} holds ClassAds; {EXTRA}, or give the output of condor_q -json")
    if _OLD.match(text):
        return (_old(classad, block) for block in _BLANK.split(text) if block.strip())
    if not _is_bounded(text, ";"):
        raise InputError(f"{source} holds ClassAds nested too deep or too long; give condor_q -json")
    return _new(classad, text)


def _is_bounded(text: str, separator: str) -> bool:
    """Whether attributes, each up to a `separator`, are neither long nor deep."""
    bare = _QUOTED.sub(r"\1", text)
    if _AMBIGUOUS.search(bare) or max(map(len, bare.split(separator))) > _LONGEST:
        return False
    characters, depth = np.frombuffer(bare.encode(), np.uint8), 0
    for start in range(0, characters.size, _AT_ONCE):
        piece = characters[start : start + _AT_ONCE]
        change = np.isin(piece, _OPENING).astype(np.int8) - np.isin(piece, _CLOSING).astype(np.int8)
        depths = depth + np.cumsum(change, dtype=np.int32)
        if depths.max() > _DEEPEST:
            return False
        depth = int(depths[-1])
    return True


def _old(classad: ModuleType, block: str) -> object:
    """The ad of a block of lines. The library stops without a word at a line that it cannot read."""
    if not _is_bounded(block, "\n"):
        return block
    try:
        ad = classad.parseOne(block, classad.ParserType.Old)
    except (ValueError, classad.ClassAdException):
        return block
    names = {line.partition("=")[0].strip().lower() for line in block.splitlines() if line.strip()}
    return _object(classad, ad) if {name.lower() for name in ad} >= names else block


def _new(classad: ModuleType, text: str) -> Iterator[object]:
    parsed = classad.parseAds(text, classad.ParserType.New)
    n_read = 0
    try:
        for ad in parsed:
            n_read += 1
            yield _object(classad, ad)
    except (ValueError, classad.ClassAdException):
        yield f"no ClassAd after {n_read} of them; nothing after it is read"


def _object(classad: ModuleType, ad: Mapping[str, object]) -> dict[str, object]:
    return {name: _plain(classad, value) for name, value in ad.items()}


def _plain(classad: ModuleType, value: object) -> object:
    if isinstance(value, classad.ExprTree):
        return f"/Expr({value})/"
    if isinstance(value, list):
        return [_plain(classad, element) for element in value]
    return value if isinstance(value, str | int | float) and not isinstance(value, classad.Value) else None


def is_expression(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/Expr(")


def value_of(name: str, ad: Mapping[str, object]) -> object:
    """The value of `name` in `ad`, an object with names in lower case; None for undefined or error.

    An expression is evaluated where the library is installed, by those attributes that are none, so that ads
    made for that cannot take long.
    """
    value = ad.get(name)
    classad = library()
    if not is_expression(value):
        return value
    match = _EXPRESSION.fullmatch(str(value))
    if classad is None or match is None or len(match[1]) > _LONGEST:
        return None
    called = {function.lower() for function in _CALLED.findall(_QUOTED.sub(r"\1", match[1]))}
    if not called <= _QUICK or not _is_bounded(match[1], "\n"):
        return None
    try:
        expression = classad.ExprTree(match[1])
        words = {word.lower() for word in re.findall(r"[A-Za-z_]\w*", match[1])} & ad.keys()
        literals = {word: ad[word] for word in words if _is_literal(ad[word])}
        return _plain(classad, expression.eval(classad.ClassAd(literals)))
    except (ValueError, TypeError, OverflowError, classad.ClassAdException):
        return None


def _is_literal(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= _LONGEST and all(part is None or _is_literal(part) for part in value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) or (
        isinstance(value, str) and len(value) <= _LONGEST and not is_expression(value)
    )
