"""Experiment, dataset, tier and campaign from the name of a file or dataset (LFN, DID or dataset name).

The rules are data, of which `name_parts` makes SQL. The patterns mean the same in Python and Java (no `\\w`,
no named groups). Sources: the field's naming rules for CMS LFNs
(`/store/data/ERA/PRIMARY/TIER/PROC-vN/…`), ATLAS DIDs (`project.number.short.step.type.tags`), LHCb
bookkeeping paths (`/LHCb/Collision10/…/BHADRON.DST`) and OSDF namespaces (`/ncar/…`).
A campaign is the era of CMS, the project of ATLAS or the configuration of LHCb; in OSDF the archive number of
NCAR or the observing run of LIGO.
"""

import dataclasses
import re
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

NO_NAMES = (
    *("NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "Null", "None", "none", "NONE"),
    *("unknown", "Unknown", "UNKNOWN", "-", "[]", "\\N"),
)
"""What records hold in place of a missing name or number."""
MAX_NAME_CHARS = 4096
# Engines differ in what ends a line, so a name with a control character or a line separator has no parts.
UNFIT = "[\\u0000-\\u001f\\u007f\\u0085\\u2028\\u2029]"


class NameParts(NamedTuple):
    """The parts of a name; None where the name does not contain one. `dataset`: a name without scope."""

    experiment: str | None = None
    dataset: str | None = None
    tier: str | None = None
    campaign: str | None = None


@dataclasses.dataclass(frozen=True)
class Rule:
    """One form of names. `tier` and `campaign`: the group of the pattern that gives them; 0: none does.

    `dataset`: texts and group numbers, joined in order. `holds`: text that all such names contain; a quick
    test for it avoids most pattern matches.
    """

    experiment: str
    pattern: str
    dataset: tuple[str | int, ...] = ()
    tier: int = 0
    campaign: int = 0
    holds: str = "/"


_OSDF = "ncar|ospool|osgconnect|chtc|igwn|icecube|pelicanplatform"
_CMS = "^/(?:eos/cms/)?store/"
_CMS_KIND = "data|mc|hidata|himc|relval|express|generator|unmerged|backfill/[0-9]+/(?:data|mc)"
_CMS_FILE = "([^/]+)/([^/]+)/([0-9A-Z_-]+)/([^/]+)/.+$"
_CMS_DATASET = ("/", 2, "/", 1, "-", 4, "/", 3)
CMS_LFN = f"^/store/(?:{_CMS_KIND})/{_CMS_FILE}"
LHCB_LFN = "/lhcb/(?:(?:LHCb|MC)/[^/]+/[^/]+/[0-9]{8}|data/[0-9]{4}/RAW/[^/]+/[^/]+/[^/]+/[0-9]+)/.+"
"""Patterns of LFNs that name their dataset: CMS's begin a path, LHCb's may end one."""
_LHCB = "^(?:/eos/lhcb/grid/prod)?"
_ATLAS_PROJECT = "(?:data|mc|valid|hi)[0-9]{1,2}_[0-9A-Za-z]+"
# AOD, ESD, EVNT, HITS, HIST, RAW, RDO, TAG, TXT; with a suffix DAOD, DESD, DRAW, DRDO, NTUP, HIST, RDO, TXT.
# No two alternatives begin alike, so a matcher needs one pass; with ambiguous ones RE2 takes twice as long.
_SUFFIX = "_[0-9A-Z_]+"
_ATLAS_TYPE = (
    f"AOD|E(?:SD|VNT)|HI(?:TS|ST(?:{_SUFFIX})?)|R(?:AW|DO(?:{_SUFFIX})?)|T(?:AG|XT(?:{_SUFFIX})?)"
    f"|(?:D(?:AOD|ESD|RAW|RDO)|NTUP){_SUFFIX}"
)
_ATLAS_TAG = "(?:[a-z]|grp|pro|t0pro|repro)[0-9]+"

# The first rule that matches counts; a pattern covers the whole name.
RULES: tuple[Rule, ...] = (
    # Archives of NCAR are named by their number in its catalogue.
    Rule("osdf", "^(/ncar/[^/]+/(d[0-9]{6})(?:/.*)?)/[^/]+$", dataset=(1,), campaign=2),
    # LIGO, Virgo and KAGRA: frames of an observing run.
    Rule("osdf", "^(/igwn/[^/]+/frames/(O[0-9][0-9a-z]*)/.*)/[^/]+$", dataset=(1,), campaign=2),
    Rule("osdf", f"^(/(?:{_OSDF})(?:/.*)?)/[^/]+$", dataset=(1,)),
    Rule("cms", f"{_CMS}(?:{_CMS_KIND})/{_CMS_FILE}", _CMS_DATASET, tier=3, campaign=1, holds="/store/"),
    Rule("cms", f"{_CMS}results/[^/]+/{_CMS_FILE}", _CMS_DATASET, tier=3, campaign=1, holds="/store/"),
    Rule("cms", f"{_CMS}.*$", holds="/store/"),
    Rule(
        "lhcb", "^(/(?:LHCb|MC)/([^/]+)/(?:.*/)?(?:[^/]*[.])?([0-9A-Z]+))$", dataset=(1,), tier=3, campaign=2
    ),
    Rule(
        "lhcb",
        f"{_LHCB}(/lhcb/(?:LHCb|MC)/([^/]+)/(?:[^/]*[.])?([0-9A-Z]+)/[0-9]{{8}})/.+$",
        dataset=(1,),
        tier=3,
        campaign=2,
        holds="/lhcb/",
    ),
    # Raw data: stream, partition, period and run.
    Rule(
        "lhcb",
        f"{_LHCB}(/lhcb/data/[0-9]{{4}}/(RAW)/[^/]+/[^/]+/([^/]+)/[0-9]+)/[^/]+$",
        dataset=(1,),
        tier=2,
        campaign=3,
        holds="/lhcb/",
    ),
    Rule("lhcb", f"{_LHCB}/(?:lhcb|LHCb|MC)/.*$"),
    Rule("cms", "^(/[^/]+/([^/-]+)-[^/]+/([0-9A-Z_-]+))(?:#[^/]*)?$", dataset=(1,), tier=3, campaign=2),
    Rule(
        "atlas",
        f"^(?:[^/:]+:)?(({_ATLAS_PROJECT})[.][0-9A-Za-z]+[.][^./:]+[.][^./:]+[.]([0-9A-Z_]+)"
        f"[.]{_ATLAS_TAG}(?:_{_ATLAS_TAG}){{0,20}}(?:_(?:tid|sub|der)[0-9]+(?:_[0-9]+)?)?)/?$",
        dataset=(1,),
        tier=3,
        campaign=2,
        holds=".",
    ),
    # Raw data, the dataset of a run or one of its files: without tags.
    Rule(
        "atlas",
        f"^(?:[^/:]+:)?(({_ATLAS_PROJECT})[.][0-9]{{8}}[.][^./:]+[.]daq[.](RAW|DRAW_[0-9A-Z_]+))"
        "(?:[.]_lb[0-9]+[.][^/:]+)?/?$",
        dataset=(1,),
        tier=3,
        campaign=2,
        holds=".daq.",
    ),
    Rule(
        "atlas",
        f"^.*/rucio/({_ATLAS_PROJECT})/[0-9a-f]{{2}}/[0-9a-f]{{2}}/(?:({_ATLAS_TYPE})[.])?[^/]+$",
        tier=2,
        campaign=1,
        holds="/rucio/",
    ),
    Rule(
        "atlas",
        f"^(?:({_ATLAS_PROJECT}):)?({_ATLAS_TYPE})[.][0-9]+[.]_[0-9]+[.][^/:]+$",
        tier=2,
        campaign=1,
        holds="._",
    ),
    Rule("atlas", f"^(?:({_ATLAS_PROJECT}):|panda[.]|panda:).*$", campaign=1, holds=""),
)


def did_parts(dids: pa.Array) -> pa.StructArray:
    """`scope` and `name` of each DID `scope:name`; null for a text without a colon."""
    return pc.extract_regex(dids, r"(?s)^(?P<scope>[^:]*):(?P<name>.*)$")


def names_of(dids: pa.Array) -> pa.Array:
    """The names of `dids`, without their scopes."""
    return pc.struct_field(did_parts(dids), "name")


# A separator: no name contains it, because it is a control character.
_BETWEEN = "\x1f"
# Matches nearly all names, faster than the search for unfit characters.
_PLAIN = "^[ -~]*$"
UNFIT_RE2 = re.sub(r"\\u([0-9a-f]{4})", r"\\x{\1}", UNFIT)
_SCOPE = "^[^/:]*:"


def tiers_of(names: pa.StringArray) -> pa.StringArray:
    """The data tier in each name or did; null for a name without one."""
    bare = pc.replace_substring_regex(names.cast(pa.string()), _SCOPE, "")
    unfit = pc.match_substring_regex(bare, UNFIT_RE2)
    fit = pc.and_(pc.invert(unfit), pc.less_equal(pc.utf8_length(bare), MAX_NAME_CHARS))
    left = pc.if_else(fit, bare, None)
    tier_of = pa.nulls(len(names), pa.string())
    for rule in RULES:
        matches = pc.match_substring_regex(left, rule.pattern).fill_null(False)
        if rule.tier:
            tier = pc.replace_substring_regex(left, rule.pattern, rf"\{rule.tier}")
            tier_of = pc.if_else(matches, tier, tier_of)
        left = pc.if_else(matches, None, left)
    return pc.if_else(pc.equal(tier_of, ""), None, tier_of)


def literal(text: str) -> str:
    """`text` as an SQL literal."""
    quoted = text.replace("'", "''").split("\0")
    return "('" + "' || chr(0) || '".join(quoted) + "')" if len(quoted) > 1 else f"'{quoted[0]}'"


def name_parts(name: str) -> str:
    """SQL for the fields of `NameParts` of the column `name`, as a list of texts; null for a null name.

    Make it a column of its own, and get the fields with `part`. All are null for a name of unknown form.
    `/store/mc/ERA/PRIMARY/AODSIM/PROC-v1/0/f.root` gives dataset `/PRIMARY/ERA-PROC-v1/AODSIM`. An ATLAS
    file name contains the tier but not the dataset; the dataset of an OSDF object is its folder.
    """
    unfit = (
        f"length({name}) > {MAX_NAME_CHARS} OR "
        f"(NOT regexp_matches({name}, '{_PLAIN}') AND regexp_matches({name}, '{UNFIT_RE2}'))"
    )
    rules = " ".join(f"WHEN {_fits(rule, name)} THEN {_parts_of(rule, name)}" for rule in RULES)
    no_parts = literal(_BETWEEN * (len(NameParts._fields) - 1))
    joined = f"CASE WHEN {name} IS NULL THEN NULL WHEN {unfit} THEN {no_parts} {rules} ELSE {no_parts} END"
    return f"string_split({joined}, {literal(_BETWEEN)})"


def part(parts: str, field: str) -> str:
    """SQL for one `field` of the list `parts` of `name_parts`; null if the name does not contain it."""
    return f"nullif({parts}[{NameParts._fields.index(field) + 1}], '')"


def _fits(rule: Rule, name: str) -> str:
    matches = f"regexp_matches({name}, {literal(rule.pattern)})"
    return f"contains({name}, {literal(rule.holds)}) AND {matches}" if rule.holds else matches


def _parts_of(rule: Rule, name: str) -> str:
    """SQL for the parts of a name that fits `rule`: they replace the whole name, which the pattern covers."""
    parts = {
        "experiment": rule.experiment,
        "dataset": "".join(p if isinstance(p, str) else f"\\{p}" for p in rule.dataset),
        "tier": f"\\{rule.tier}" if rule.tier else "",
        "campaign": f"\\{rule.campaign}" if rule.campaign else "",
    }
    replacement = literal(_BETWEEN.join(parts[field] for field in NameParts._fields))
    return f"regexp_replace({name}, {literal(rule.pattern)}, {replacement})"
