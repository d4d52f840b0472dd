"""Decayed and plain counts of files and datasets in DuckDB's SQL, for one as_of, to measure features against.

There are no passes, gaps, places, states, or late reads: it is the part that a database does well.
"""

from __future__ import annotations

from collections.abc import Sequence

from features.spec import FeatureSpec
from features.stream.columns import HALF_LIVES_S


def query(files: Sequence[str], out: str, *, as_of_s: int, spec: FeatureSpec) -> str:
    """Reads accesses from `files` (Parquet), writes the rows of candidates at `as_of_s` to `out`."""
    listed = ", ".join(f"'{name}'" for name in files)
    return f"""copy (
        with reads as (select did, dataset, tier, campaign, size_bytes, n_reads,
                {as_of_s} - epoch(accessed_at) as age_s
            from read_parquet([{listed}])
            where epoch_us(known_at) < {as_of_s}000000 and epoch_us(accessed_at) < {as_of_s}000000),
        of_did as (select did, min(dataset) as dataset, min(tier) as tier, min(campaign) as campaign,
            min(size_bytes) as size_bytes, {_figures("")} from reads group by did),
        of_dataset as (select dataset, count(distinct did) as dataset_n_files, {_figures("dataset_")}
            from reads group by dataset)
        select * from of_did join of_dataset using (dataset)
        where dataset_recency_s <= {spec.history_s}
            and (recency_s <= {spec.candidate_s} or dataset_recency_s <= {spec.active_dataset_s})
        order by did) to '{out}'"""


def _figures(prefix: str) -> str:
    decayed = (
        f"sum(n_reads * pow(2, -age_s / {s})) as {prefix}decayed_{s / 3600:.0f}h" for s in HALF_LIVES_S
    )
    plain = (
        f"sum(n_reads) as {prefix}n_reads",
        f"min(age_s) as {prefix}recency_s",
        f"max(age_s) as {prefix}since_first_s",
    )
    return ", ".join((*plain, *decayed))
