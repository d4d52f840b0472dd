"""What the three hooks share: ads in and out, and the question to the placement service.

Needs Python's standard library alone; expressions are read by HTCondor's bindings, where they are installed.
CACHECAST_URL names the service, in the environment of the daemons.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import time
import urllib.request

try:
    import classad2 as classad
except ImportError:
    classad = None

URL = os.environ.get("CACHECAST_URL", "http://localhost:8400")
TIMEOUT_S = 5.0
SEPARATOR = "------"
_ATTRIBUTE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def given() -> str:
    """Standard input: its bytes, whatever the locale, also those that are no text or end no line here."""
    return sys.stdin.buffer.read().decode(errors="surrogateescape")


def give(text: str) -> None:
    """Write standard output, with the bytes that were given."""
    sys.stdout.buffer.write(text.encode(errors="surrogateescape"))
    sys.stdout.buffer.flush()


def read_ads(text: str) -> list[dict[str, str]]:
    """Ads by attribute, as expressions; a line of dashes stands between two. Other lines are skipped."""
    ads: list[dict[str, str]] = [{}]
    # Not `splitlines`: to that, characters within a string end a line too, and a job could write attributes.
    for line in map(str.strip, text.split("\n")):
        if line == SEPARATOR:
            ads.append({})
        elif match := _ATTRIBUTE.fullmatch(line):
            ads[-1][match[1]] = match[2]
    return ads


def write_ad(ad: dict[str, str]) -> str:
    """The ad as HTCondor reads it."""
    return "".join(f"{name} = {value}\n" for name, value in ad.items())


def scored(ad: dict[str, str]) -> dict[str, str]:
    """The attributes that rank sites for a job; none, and the reason on stderr, if they cannot be ranked.

    The job names its input as `+CachecastInputs = "scope:name, scope:name"`, files or datasets.
    """
    inputs = [name.strip() for name in _value("CachecastInputs", ad).split(",") if name.strip()]
    if not inputs:
        return left_alone(ad, "it names no input; submit it with +CachecastInputs")
    now = int(time.time())
    submitted = int(ad["QDate"]) if ad.get("QDate", "").isdecimal() else now
    answer = _ask({"inputs": inputs, "waited_s": max(0, now - submitted)})
    if isinstance(answer, str):
        return left_alone(ad, f"{URL}/score: {answer}; check CACHECAST_URL and the placement service")
    if not answer["sites"]:
        return left_alone(ad, "the placement service knows no site with a live cache")
    best = answer["sites"][0]
    return {
        "CachecastBest": _quoted(best["site"]),
        "CachecastSites": _quoted(",".join(site["site"] for site in answer["sites"])),
        "CachecastCachedFraction": str(best["cached_fraction"]),
        "CachecastProcessingTime": str(best["processing_s"]),
        "CachecastReleased": str(answer["released"]).lower(),
        "CachecastReleaseAt": str(submitted + int(answer["max_wait_s"])),
    }


def left_alone(ad: dict[str, str], why: str) -> dict[str, str]:
    """Say on stderr, which HTCondor logs, why a job stays as it is; no attributes."""
    sys.stderr.write(
        f"cachecast: job {ad.get('ClusterId', '?')}.{ad.get('ProcId', '0')} stays as it is: {why}\n"
    )
    return {}


def _ask(question: dict[str, object]) -> dict | str:
    """The answer, or why there is none: a job must not fail because nobody ranks its sites."""
    body = json.dumps(question).encode()
    kind = {"content-type": "application/json"}
    request = urllib.request.Request(f"{URL}/score", body, kind)  # noqa: S310 - the operators' own URL
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310
            answer = json.load(reply)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return " ".join(str(error).split())
    return answer if isinstance(answer, dict) and "sites" in answer else "answers, but not as this service"


def _value(name: str, ad: dict[str, str]) -> str:
    """The text that an attribute is, or that its expression gives; empty for anything else."""
    expression = ad.get(name, "")
    is_text = expression[:1] == expression[-1:] == '"' and expression.replace('\\"', "").count('"') == 2
    if is_text or classad is None:
        return _text(expression)
    try:
        value = classad.parseOne(write_ad(ad), classad.ParserType.Old).eval(name)
    except (KeyError, ValueError, classad.ClassAdException):
        return ""
    return value if isinstance(value, str) else ""


def _text(expression: str) -> str:
    # Only quotes are escaped in the form in which hooks get ads.
    return expression[1:-1].replace('\\"', '"') if expression[:1] == '"' else ""


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
