"""The generated accesses and files as Arrow tables, slice by slice; names in the experiments' own forms.

`features.common.names` can read all names: CMS LFNs, ATLAS production DIDs, PanDA's libraries and
unmerged files.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.errors import ConfigError
from features.common.hashes import mixed
from replay.workload.catalogue import ONCE, SETTLE_DAYS, Catalogue, Datasets
from replay.workload.config import ANALYSIS, PRODUCTION, WorkloadConfig
from replay.workload.tasks import PackedReads, Tasks

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
        scope=_of(["cms"], line),
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
    scope = _of(["panda"], members)
    return DatasetNames(
        scope=scope,
        name=name,
        tier=_of([category], members),
        campaign=scope,
        prefix=_join(name, "." if category == "lib.tgz" else "._"),
        suffix=_of([suffix], members),
    )


ROWS_AT_ONCE = 1 << 20
"""Rows of a slice, and of a row group where slices are written."""

_TIME = pa.timestamp("us", tz="UTC")
_DAY_US = 86_400_000_000
_READ_SPREAD = 0.1
# A MINIAOD job reads about 2.4 MB/s of an unscaled file (SOCAL).
_RATE_BYTES_PER_S = 2.4e6
_TASK_LABELS = {"cms": ("crab_", "prod_"), "atlas": ("anal_", "prod_")}


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """A generated region: its files, the passes over its datasets, and every read in time order.

    `created_day`: when the first file of each dataset was created, in days from the start.
    """

    config: WorkloadConfig
    catalogue: Catalogue
    tasks: Tasks
    reads: PackedReads
    names: DatasetNames
    created_day: FloatArray

    @property
    def n_accesses(self) -> int:
        """Reads within the days."""
        return len(self.reads)

    @property
    def n_files(self) -> int:
        """Files of the catalogue, read or not."""
        return self.catalogue.size_bytes.size

    def access_slices(self, *, raw: bool = False) -> Iterator[pa.Table]:
        """The accesses in tables of up to `ROWS_AT_ONCE` rows; see `accesses`."""
        for begin in range(0, self.n_accesses, ROWS_AT_ONCE):
            yield self._accesses(begin, min(self.n_accesses, begin + ROWS_AT_ONCE), raw)

    def file_slices(self) -> Iterator[pa.Table]:
        """The catalogue in tables of up to `ROWS_AT_ONCE` rows; see `files`."""
        for begin in range(0, self.n_files, ROWS_AT_ONCE):
            yield self._files(np.arange(begin, min(self.n_files, begin + ROWS_AT_ONCE)))

    def accesses(self, *, raw: bool = False) -> pa.Table:
        """One row per read, by time: accessed_at, closed_at, did, dataset, category, tier, size_bytes,
        read_bytes, origin, site, user (a plain name), task, activity; strings are dictionary-encoded.
        With `raw` also scope, name and event_id: all that a Rucio trace has.
        """
        return pa.concat_tables(self.access_slices(raw=raw)).unify_dictionaries()

    def files(self) -> pa.Table:
        """One row per file, read or not: did, scope, name, dataset, category, tier, campaign, experiment,
        size_bytes, created_at, origin; strings but did and name are dictionary-encoded.
        """
        return pa.concat_tables(self.file_slices()).unify_dictionaries()

    def _accesses(self, begin: int, end: int, raw: bool) -> pa.Table:
        reads, datasets = self.reads.slice(begin, end), self.catalogue.datasets
        dataset = self.tasks.dataset[reads.task].astype(np.int64)
        size = self.catalogue.size_bytes[reads.file]
        read, seconds = self._transfers(reads.task, dataset, size, begin)
        used, code = _compact(reads.file, self.n_files)
        names = self._names_of(used)
        columns: dict[str, Any] = {
            "accessed_at": pa.array(reads.accessed_us).cast(_TIME),
            "closed_at": pa.array(reads.accessed_us + (seconds * 1e6).astype(np.int64)).cast(_TIME),
            "did": _coded(pc.binary_join_element_wise(*names, ":"), code),
            "dataset": self._dataset(dataset),
            "category": _coded(self._vocabulary["category"], datasets.category[dataset]),
            "tier": self._words["tier"].take(pa.array(dataset)),
            "size_bytes": size,
            "read_bytes": read,
            "origin": _coded(self._vocabulary["origin"], datasets.origin[dataset]),
            "site": _coded(self._vocabulary["site"], self.tasks.site[reads.task]),
            "user": _coded(self._vocabulary["user"], self.tasks.user[reads.task] + 1),
            "task": self._task(reads.task),
            "activity": _coded(self._vocabulary["activity"], self.tasks.production[reads.task]),
        }
        if raw:
            columns["scope"], columns["name"] = (values.take(pa.array(code)) for values in names)
            columns["event_id"] = pa.array(hex_ids(self.config.seed, np.arange(begin, end), kind=EVENT_ID))
            columns["event_id"] = columns["event_id"].cast(pa.string())
        return pa.table(columns)

    def _files(self, file: IntArray) -> pa.Table:
        datasets, dataset = self.catalogue.datasets, self.catalogue.dataset_of(file)
        place = file - self.catalogue.first_file[dataset]
        names = file_names(self.config, self.names, dataset, place, file)
        scope = self._words["scope"].take(pa.array(dataset))
        day = self.created_day[dataset] + SETTLE_DAYS * place / datasets.n_files[dataset]
        created = self.config.start_s * 1_000_000 + (day * _DAY_US).astype(np.int64)
        return pa.table(
            {
                "did": pc.binary_join_element_wise(scope.cast(pa.string()), names, ":"),
                "scope": scope,
                "name": names,
                "dataset": self._dataset(dataset),
                "category": _coded(self._vocabulary["category"], datasets.category[dataset]),
                "tier": self._words["tier"].take(pa.array(dataset)),
                "campaign": self._words["campaign"].take(pa.array(dataset)),
                "experiment": _coded(pa.array([self.config.experiment]), np.zeros(file.size, np.int32)),
                "size_bytes": self.catalogue.size_bytes[file],
                "created_at": pa.array(created).cast(_TIME),
                "origin": _coded(self._vocabulary["origin"], datasets.origin[dataset]),
            }
        )

    def _transfers(
        self, task: IntArray, dataset: IntArray, size: IntArray, begin: int
    ) -> tuple[IntArray, FloatArray]:
        """Bytes read, and for how many seconds."""
        # Each slice has its own generator, so that it does not depend on the slices made before.
        rng = np.random.default_rng((self.config.seed, begin))
        usual = np.array([c.read_share for c in self.config.categories])
        share = usual[self.catalogue.datasets.category[dataset]]
        varied = np.clip(share + _READ_SPREAD * rng.standard_normal(task.size), 0.01, 1.0)
        is_once = self.catalogue.datasets.role[dataset] == ONCE
        read = np.where(is_once | (share >= 1), 1.0, varied) * size
        seconds = read / self.config.size_scale / _RATE_BYTES_PER_S * rng.uniform(0.8, 1.3, task.size)
        return read.astype(np.int64), seconds

    def _names_of(self, file: IntArray) -> tuple[pa.StringArray, pa.StringArray]:
        """Scope and name of each file."""
        dataset = self.catalogue.dataset_of(file)
        place = file - self.catalogue.first_file[dataset]
        names = file_names(self.config, self.names, dataset, place, file)
        return self.names.scope.take(pa.array(dataset)), names

    def _dataset(self, dataset: IntArray) -> pa.DictionaryArray:
        used, code = _compact(dataset, self.created_day.size)
        index = pa.array(used)
        values = pc.binary_join_element_wise(self.names.scope.take(index), self.names.name.take(index), ":")
        return _coded(values, code)

    def _task(self, task: IntArray) -> pa.DictionaryArray:
        used, code = _compact(task, self.tasks.dataset.size)
        analysis, production = _TASK_LABELS[self.config.experiment]
        kind = pc.if_else(pa.array(self.tasks.production[used]), production, analysis)
        return _coded(pc.binary_join_element_wise(kind, padded(used, 8), ""), code)

    @cached_property
    def _vocabulary(self) -> dict[str, pa.StringArray]:
        config = self.config
        users = [f"{config.experiment[:3]}prod", *(f"user{i:03d}" for i in range(config.n_users))]
        return {
            "category": pa.array([c.name for c in config.categories]),
            "origin": pa.array([o.name for o in config.origins]),
            "site": pa.array(config.sites),
            "user": pa.array(users),
            "activity": pa.array([ANALYSIS, PRODUCTION]),
        }

    @cached_property
    def _words(self) -> dict[str, pa.DictionaryArray]:
        return {name: getattr(self.names, name).dictionary_encode() for name in ("scope", "tier", "campaign")}


def _coded(values: pa.StringArray, code: npt.NDArray[Any]) -> pa.DictionaryArray:
    # Codes come from `_compact` or an index, so they are in range; checking them would double the time.
    return pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), values, safe=False)


def _compact(index: IntArray, n: int) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """The numbers below `n` that occur in `index`, ascending, and the place of each entry among them."""
    occurs = np.zeros(n, np.bool_)
    occurs[index] = True
    used = np.flatnonzero(occurs)
    place = np.empty(n, np.int32)
    place[used] = np.arange(used.size, dtype=np.int32)
    return used, place[index]
