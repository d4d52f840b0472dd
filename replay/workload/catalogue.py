"""The datasets and files of the made-up region."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from replay.planner import BoolArray, IntArray
from replay.workload.config import TierConfig, WorkloadConfig

FloatArray = npt.NDArray[np.float64]

ANALYSIS, PRODUCTION, DORMANT = range(3)
_NEVER = np.inf
_DATA = (
    "MuonEG",
    "DoubleMuon",
    "SingleMuon",
    "EGamma",
    "JetMET",
    "Tau",
    "BTagMu",
    "HTMHT",
    "ZeroBias",
    "MET",
)
_MC = (
    "TTto2L2Nu",
    "DYto2L-4Jets",
    "WtoLNu-2Jets",
    "QCD_PT-15to7000",
    "GluGluHto2B",
    "TbarWplus",
    "ZZto4L",
    "WWto2L2Nu",
)
_DATA_ERAS = ("Run2024C", "Run2024F", "Run2025B", "Run2025C", "Run2025D", "Run2026A")
_MC_ERAS = ("RunIII2024Summer24", "RunIII2025Winter25", "Run3Summer23", "RunIISummer20UL18")


class Datasets(NamedTuple):
    """One entry per dataset; days count from the month's start and may be negative.

    `name` is `/PRIMARY/ERA-PROC-vN/TIER`, `folder` the LFN up to the file. `role`: ANALYSIS, PRODUCTION
    or DORMANT. `weight`: popularity, mean 1. `dies_day`: when a new version replaces it, else inf.
    """

    name: list[str]
    folder: list[str]
    era: list[str]
    tier_name: list[str]
    tier: IntArray
    n_files: IntArray
    role: IntArray
    weight: FloatArray
    born_day: FloatArray
    dies_day: FloatArray
    is_new_version: BoolArray
    origin: IntArray


class Catalogue(NamedTuple):
    """`file_dataset`, `size_bytes`, `file_hex`, one entry per file, dataset by dataset from `first_file`."""

    datasets: Datasets
    first_file: IntArray
    file_dataset: IntArray
    size_bytes: IntArray
    file_hex: npt.NDArray[np.bytes_]


def make_catalogue(config: WorkloadConfig, rng: np.random.Generator) -> Catalogue:
    """Every dataset and file, new versions included, sizes scaled."""
    datasets = _make_datasets(config, rng)
    n = datasets.n_files
    file_dataset = np.repeat(np.arange(n.size), n)
    tier = datasets.tier[file_dataset]
    median = np.array([t.size_bytes_median for t in config.tiers])[tier]
    sigma = np.array([t.size_sigma for t in config.tiers])[tier]
    size = median * np.exp(sigma * rng.standard_normal(tier.size)) * config.size_scale
    return Catalogue(
        datasets=datasets,
        first_file=np.cumsum(n) - n,
        file_dataset=file_dataset,
        size_bytes=np.maximum(size, config.min_size_bytes).astype(np.int64),
        file_hex=hex_ids(rng, tier.size),
    )


def hex_ids(rng: np.random.Generator, n: int) -> npt.NDArray[np.bytes_]:
    """`n` random identifiers of 32 hex digits, without a loop over them."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, (n, 32), np.uint8)]
    ids: npt.NDArray[np.bytes_] = digits.view("S32").reshape(n)
    return ids


def _make_datasets(config: WorkloadConfig, rng: np.random.Generator) -> Datasets:
    tier = np.repeat(np.arange(len(config.tiers)), [t.n_datasets for t in config.tiers])
    draws = [_draw_tier(t, config, rng) for t in config.tiers]
    n_files, role, weight, is_mc = (np.concatenate(column) for column in zip(*draws, strict=True))
    born = np.where(
        rng.random(tier.size) < config.new_version_share,
        rng.uniform(0, config.days, tier.size),
        -rng.exponential(150, tier.size) - 1,
    )
    replaced = (role == ANALYSIS) & (born < 0) & (rng.random(tier.size) < config.new_version_share)
    dies = np.where(
        replaced,
        rng.uniform(min(2, config.days / 2), max(config.days - 2, config.days / 2), tier.size),
        _NEVER,
    )
    old = np.flatnonzero(replaced)
    source = np.concatenate([np.arange(tier.size), old])
    is_new = np.arange(source.size) >= tier.size
    names = [_name(int(i), config.tiers[tier[i]].name, bool(is_mc[i])) for i in range(tier.size)]
    labels = [(*names[i], 2 if new else 1) for i, new in zip(source, is_new, strict=True)]
    shares = np.array([origin.share for origin in config.origins])
    return Datasets(
        name=[f"/{primary}/{era}-{proc}-v{v}/{t}" for primary, era, proc, t, v in labels],
        folder=[_folder(*label) for label in labels],
        era=[label[1] for label in labels],
        tier_name=[label[3] for label in labels],
        tier=tier[source],
        n_files=n_files[source],
        role=role[source],
        weight=weight[source],
        born_day=np.concatenate([born, dies[old]]),
        dies_day=np.concatenate([dies, np.full(old.size, _NEVER)]),
        is_new_version=is_new,
        origin=rng.choice(shares.size, tier.size, p=shares / shares.sum())[source],
    )


def _draw_tier(
    tier: TierConfig, config: WorkloadConfig, rng: np.random.Generator
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    n = tier.n_datasets
    files = np.exp(np.log(tier.files_median) + tier.files_sigma * rng.standard_normal(n))
    chance = rng.random(n)
    role = np.where(
        chance < tier.production_share,
        PRODUCTION,
        np.where(chance < tier.production_share + tier.dormant_share, DORMANT, ANALYSIS),
    )
    sigma = config.popularity_sigma
    weight = np.exp(sigma * rng.standard_normal(n) - sigma * sigma / 2)
    # The largest dataset of a tier is bounded, lest one draw decides the month.
    files = np.clip(files, 1, 8 * tier.files_median)
    return files.astype(np.int64), role, weight, rng.random(n) < tier.mc_share


def _name(i: int, tier: str, is_mc: bool) -> tuple[str, str, str, str]:
    if is_mc:
        primary = f"{_MC[i % len(_MC)]}-{i:03d}_TuneCP5_13p6TeV_madgraph-pythia8"
        return primary, _MC_ERAS[i // len(_MC) % len(_MC_ERAS)], "150X_mcRun3_realistic", f"{tier}SIM"
    return (
        f"{_DATA[i % len(_DATA)]}{i:03d}",
        _DATA_ERAS[i // len(_DATA) % len(_DATA_ERAS)],
        "PromptReco",
        tier,
    )


def _folder(primary: str, era: str, proc: str, tier: str, version: int) -> str:
    kind = "mc" if tier.endswith("SIM") else "data"
    return f"/store/{kind}/{era}/{primary}/{tier}/{proc}-v{version}/000000"
