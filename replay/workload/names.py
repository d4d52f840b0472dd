"""Names of datasets and files in the experiments' own forms, for many at once.

`features.common.names.parse_name` can read all: CMS LFNs, ATLAS production DIDs, PanDA's libraries and
unmerged files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.errors import ConfigError
from features.common.hashes import mixed
from replay.workload.catalogue import Datasets
from replay.workload.config import WorkloadConfig

_ATLAS = {
    "HITS": (("HITS",), "simul", "e8514_s4162", "pool.root.1"),
    "AOD": (("AOD",), "recon", "e8514_s4162_r15540", "pool.root.1"),
    "DAOD": (
        ("DAOD_PHYS", "DAOD_PHYSLITE", "DAOD_EXOT7", "DAOD_HIGG1D1", "DAOD_TOPQ1"),
        "deriv",
        "e8514_s4162_r15540_p6490",
        "pool.root.1",
    ),
    "EVNT": (("EVNT",), "evgen", "e8514", "pool.root.1"),
    "TXT": (("TXT",), "evgen", "e8514", "tar.gz.1"),
}
_ATLAS_DATA = {"AOD": ("merge", "f1362_m2181"), "DAOD": ("deriv", "f1362_m2181_p6490")}
_PANDA = ("panda.um", "lib.tgz")
_ATLAS_MC = (
    "PhPy8EG_A14_ttbar_hdamp258p75_SingleLep",
    "Sh_2214_Zee_maxHTpTV2_BFilter",
    "PhPy8EG_PDF4LHC21_ggH125_bb",
    "Py8EG_A14NNPDF23LO_jj_JZ4",
    "MGPy8EG_A14N23LO_GG_direct",
    "Epos_minbias_inelastic_low",
)
_CMS_DATA = (
    *("MuonEG", "DoubleMuon", "SingleMuon", "EGamma", "JetMET"),
    *("Tau", "BTagMu", "HTMHT", "ZeroBias", "MET"),
)
_CMS_MC = (
    *("TTto2L2Nu", "DYto2L-4Jets", "WtoLNu-2Jets", "QCD_PT-15to7000"),
    *("GluGluHto2B", "TbarWplus", "ZZto4L", "WWto2L2Nu"),
)
_CMS_DATA_ERAS = ("Run2024C", "Run2024F", "Run2025B", "Run2025C", "Run2025D", "Run2026A")
_CMS_MC_ERAS = ("RunIII2024Summer24", "RunIII2025Winter25", "Run3Summer23", "RunIISummer20UL18")
_FIRST_TASK = 34_000_000
_FILE_ID = 0
EVENT_ID = 1
"""Kinds of `hex_ids`."""


class DatasetNames(NamedTuple):
    """One entry per dataset: its scope, name, tier and campaign, and prefix and suffix of its files' names.

    Between prefix and suffix comes the part that differs between the files.
    """

    scope: pa.StringArray
    name: pa.StringArray
    tier: pa.StringArray
    campaign: pa.StringArray
    prefix: pa.StringArray
    suffix: pa.StringArray


def dataset_names(config: WorkloadConfig, datasets: Datasets) -> DatasetNames:
    """The names of all datasets. Raises ConfigError for an experiment or a category without a known form."""
    known = {"cms": _cms, "atlas": _atlas}
    if config.experiment not in known:
        raise ConfigError("experiment", f"{config.experiment!r} has no names here; known: atlas, cms")
    return known[config.experiment](config, datasets)


def file_names(
    config: WorkloadConfig, names: DatasetNames, dataset: IntArray, position: IntArray, file: IntArray
) -> pa.StringArray:
    """The name of each file: the `position`-th of its `dataset`, the `file`-th of all."""
    middle = _uuids(config.seed, file) if config.experiment == "cms" else padded(position + 1, 6)
    index = pa.array(dataset)
    return pc.binary_join_element_wise(names.prefix.take(index), middle, names.suffix.take(index), "")


def hex_ids(seed: int, number: IntArray, *, kind: int) -> npt.NDArray[np.bytes_]:
    """32 hex digits for each number, determined by seed and `kind`; different numbers have different ids."""
    words = np.empty((number.size, 2), ">u8")
    for column, offset in enumerate(np.random.SeedSequence((seed, kind)).generate_state(2, np.uint64)):
        words[:, column] = mixed((number.astype(np.uint64) + offset) * np.uint64(0x9E3779B97F4A7C15))
    octets = words.view(np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[np.stack([octets >> 4, octets & 15], axis=-1)]
    ids: npt.NDArray[np.bytes_] = digits.reshape(number.size, 32).view("S32").reshape(number.size)
    return ids


def _uuids(seed: int, number: IntArray) -> pa.StringArray:
    digits = hex_ids(seed, number, kind=_FILE_ID).view(np.uint8).reshape(-1, 32)
    text = np.full((number.size, 36), ord("-"), np.uint8)
    text[:, np.delete(np.arange(36), [8, 13, 18, 23])] = digits
    return pa.array(text.view("S36").reshape(-1)).cast(pa.string())


def padded(number: IntArray, width: int) -> pa.StringArray:
    """Each number as `width` decimal digits, with leading zeros."""
    digits = number[:, None] // 10 ** np.arange(width - 1, -1, -1) % 10 + ord("0")
    return pa.array(digits.astype(np.uint8).view(f"S{width}").reshape(-1)).cast(pa.string())


def _text(number: IntArray) -> pa.StringArray:
    return pa.array(number).cast(pa.string())


def _join(*parts: object) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _of(words: Sequence[str], number: IntArray) -> pa.StringArray:
    return pa.array(words).take(pa.array(number % len(words)))


def _where(mask: BoolArray, yes: object, no: object) -> pa.StringArray:
    return pc.if_else(pa.array(mask), yes, no)


def _cms(config: WorkloadConfig, datasets: Datasets) -> DatasetNames:
    is_mc, line, group = datasets.is_mc, datasets.line, datasets.group
    category = _of([c.name for c in config.categories], datasets.category)
    tier = _where(is_mc, _join(category, "SIM"), category)
    number = padded(line, 5)
    mc = _join(_of(_CMS_MC, group), "-", number, "_TuneCP5_13p6TeV_madgraph-pythia8")
    primary = _where(is_mc, mc, _join(_of(_CMS_DATA, group), number))
    era = _where(is_mc, _of(_CMS_MC_ERAS, datasets.campaign), _of(_CMS_DATA_ERAS, datasets.campaign))
    processing = _join(_where(is_mc, "150X_mcRun3_realistic", "PromptReco"), "-v", _text(datasets.version))
    run = _join("000/38", _text(line % 10), "/", padded(line * 37 % 1000, 3), "/00000")
    folder = _where(is_mc, "2520000", run)
    kind = _where(is_mc, "mc/", "data/")
    return DatasetNames(
        scope=pa.array(["cms"]).take(pa.array(np.zeros(line.size, np.int64))),
        name=_join("/", primary, "/", era, "-", processing, "/", tier),
        tier=tier,
        campaign=era,
        prefix=_join("/store/", kind, era, "/", primary, "/", tier, "/", processing, "/", folder, "/"),
        suffix=_of([".root"], line),
    )


def _atlas(config: WorkloadConfig, datasets: Datasets) -> DatasetNames:
    parts = []
    for index, category in enumerate(config.categories):
        members = np.flatnonzero(datasets.category == index)
        if category.name in _PANDA:
            parts.append((members, _panda(category.name, config.n_users, datasets, members)))
        elif category.name in _ATLAS:
            parts.append((members, _production(category.name, datasets, members)))
        else:
            known = ", ".join((*_ATLAS, *_PANDA))
            raise ConfigError("categories", f"{category.name!r} has no names here; known: {known}")
    place = pa.array(np.argsort(np.concatenate([members for members, _ in parts]), kind="stable"))
    columns = zip(*(names for _, names in parts), strict=True)
    return DatasetNames(*(pa.concat_arrays(column).take(place) for column in columns))


def _production(category: str, datasets: Datasets, members: IntArray) -> DatasetNames:
    types, step, tags, ending = _ATLAS[category]
    data_step, data_tags = _ATLAS_DATA.get(category, (step, tags))
    is_mc = datasets.is_mc[members] | (category not in _ATLAS_DATA)
    line, group = datasets.line[members], datasets.group[members]
    tier, task = _of(types, group), _text(members + _FIRST_TASK)
    scope = _where(is_mc, "mc23_13p6TeV", "data23_13p6TeV")
    mc = _join(padded(601_000 + line % 9000, 6), ".", _of(_ATLAS_MC, group), ".", step)
    data = _join(padded(450_000 + line % 9000, 8), ".physics_Main.", data_step)
    stem = _join(scope, ".", _where(is_mc, mc, data), ".", tier, ".", _where(is_mc, tags, data_tags))
    return DatasetNames(
        scope=scope,
        name=_join(stem, "_tid", task, "_00"),
        tier=tier,
        campaign=scope,
        prefix=_join(tier, ".", task, "._"),
        suffix=_of([f".{ending}"], line),
    )


def _panda(category: str, n_users: int, datasets: Datasets, members: IntArray) -> DatasetNames:
    task = _text(members + _FIRST_TASK)
    if category == "lib.tgz":
        stem = _join("panda.0801", padded(members * 7919 % 1_000_000, 6), ".", padded(members % 10**6, 6))
        name, suffix = _join(stem, ".lib._", task), ".lib.tgz"
    else:
        user = padded(datasets.line[members] % n_users, 3)
        name, suffix = _join("panda.um.user.u", user, ".", task, ".log"), ".log.tgz"
    first = pa.array(np.zeros(members.size, np.int64))
    return DatasetNames(
        scope=pa.array(["panda"]).take(first),
        name=name,
        tier=pa.array([category]).take(first),
        campaign=pa.array(["panda"]).take(first),
        prefix=_join(name, "." if category == "lib.tgz" else "._"),
        suffix=pa.array([suffix]).take(first),
    )
