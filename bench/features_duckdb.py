"""The features table's columns in DuckDB's SQL, for one as_of and accesses alone, to measure Spark against.

Distinct users, tasks and files are approximate there too (HyperLogLog).
"""

from __future__ import annotations

from collections.abc import Sequence

from features.spec import FeatureSpec
from features.units import duration_label

_ENTITIES = {"": "did", "dataset_": "dataset"}


def query(files: Sequence[str], out: str, *, as_of_s: int, spec: FeatureSpec) -> str:
    """Reads accesses from `files` (Parquet), writes the table's columns for `as_of_s` to `out`."""
    since_s = as_of_s - spec.history_s
    listed = ", ".join(f"'{name}'" for name in files)
    parts = [
        f"""reads as (select did, dataset, tier, campaign, epoch(accessed_at)::bigint as read_at,
            epoch(accessed_at)::bigint // {spec.cycle_s} * {spec.cycle_s} as cycle, n_reads, "user", task,
            coalesce(read_bytes, size_bytes, 0) as bytes, size_bytes
            from read_parquet([{listed}])
            where epoch_us(known_at) < {as_of_s}000000 and epoch(accessed_at) >= {since_s}
              and epoch(accessed_at) < {as_of_s})"""
    ]
    parts += [_entity(prefix, key, as_of_s, spec) for prefix, key in _ENTITIES.items()]
    parts += [_group(name, as_of_s, spec) for name in ("tier", "campaign")]
    parts.append(_passes(as_of_s, spec))
    front_s = as_of_s - spec.front_s
    parts.append(
        f"""shifts as (select dataset, median(gap_1_s)::double as dataset_shift_s
            from of_did join (select did, max(dataset) as dataset from reads group by did) using (did)
            where recency_s <= {as_of_s - front_s} and gap_1_s is not null group by dataset)"""
    )
    parts.append(
        """facts as (select did, max(dataset) as dataset, max(tier) as tier, max(campaign) as campaign,
            max(size_bytes)::double as size_bytes, max(cycle) as last_cycle from reads group by did)"""
    )
    active = f"select dataset from cells_dataset where cycle >= {as_of_s - spec.active_dataset_s}"
    return f"""copy (with {", ".join(parts)}
        select facts.* exclude (last_cycle), of_did.* exclude (did), of_dataset.* exclude (dataset),
            of_tier.* exclude (tier), of_campaign.* exclude (campaign), passes.* exclude (dataset),
            dataset_shift_s, dataset_shift_s - recency_s as due_s,
            {as_of_s} // 3600 % 24 as hour, ({as_of_s} // 86400 + 3) % 7 as weekday
        from facts join of_did using (did) left join of_dataset using (dataset) left join of_tier using (tier)
            left join of_campaign using (campaign) left join passes using (dataset)
            left join shifts using (dataset)
        where last_cycle >= {as_of_s - spec.candidate_s} or dataset in ({active})
        order by did) to '{out}' (format parquet, compression zstd)"""


def _entity(prefix: str, key: str, as_of_s: int, spec: FeatureSpec) -> str:
    """Two steps: cells by cycle, which gaps and active cycles need; then the entity."""
    cells = f"""cells_{key} as (select {key}, cycle, sum(n_reads) as n, sum(bytes) as bytes,
        min(read_at) as first_at, max(read_at) as last_at
        from reads where {key} is not null group by {key}, cycle)"""
    distinct = f"""distinct_{key} as (select {key}, approx_count_distinct("user")::double as {prefix}n_users,
        approx_count_distinct(task)::double as {prefix}n_tasks from reads group by {key})"""
    columns = []
    for window_s in spec.windows_s:
        name, inside = duration_label(window_s), f"filter (where cycle >= {as_of_s - window_s})"
        columns += [f"coalesce(sum(n) {inside}, 0)::double as {prefix}n_access_{name}"]
        columns += [f"coalesce(sum(bytes) {inside}, 0)::double as {prefix}read_bytes_{name}"]
        columns += [f"(count(*) {inside})::double as {prefix}n_active_{name}"]
    for half_life_s in spec.half_lives_s:
        weight = f"pow(2.0, -({as_of_s} - cycle) / {half_life_s}.0)"
        columns += [f"sum(n * {weight}) as {prefix}decayed_{duration_label(half_life_s)}"]
    columns += [f"({as_of_s} - max(last_at))::double as {prefix}recency_s"]
    columns += [f"({as_of_s} - min(first_at))::double as {prefix}first_read_s"]
    for name, period_s in (("n_same_hour", 86400), ("n_same_weekday", 7 * 86400)):
        same = f"filter (where ({as_of_s} - cycle) % {period_s} = 0)"
        columns += [f"coalesce(sum(n) {same}, 0)::double as {prefix}{name}"]
    columns += [f"list(last_at order by cycle desc)[1:{spec.n_gaps + 1}] as lasts"]
    gaps = ", ".join(f"lasts[{k}] - lasts[{k + 1}] as {prefix}gap_{k}_s" for k in range(1, spec.n_gaps + 1))
    summed = f"summed_{key} as (select {key}, {', '.join(columns)} from cells_{key} group by {key})"
    whole = f"""of_{key} as (select summed_{key}.* exclude (lasts), {gaps}, distinct_{key}.* exclude ({key})
        from summed_{key} join distinct_{key} using ({key}))"""
    return ", ".join((cells, distinct, summed, whole))


def _group(key: str, as_of_s: int, spec: FeatureSpec) -> str:
    columns = ", ".join(
        f"sum(n_reads) filter (where cycle >= {as_of_s - w})::double as {key}_n_access_{duration_label(w)}"
        for w in spec.windows_s
    )
    return f"of_{key} as (select {key}, {columns} from reads where {key} is not null group by {key})"


def _passes(as_of_s: int, spec: FeatureSpec) -> str:
    """A dataset's passes by the pauses between its cycles, and the files of the last."""
    return f"""begun as (select dataset, cycle, first_at, coalesce(first_at - lag(last_at) over
            (partition by dataset order by cycle) > {spec.active_dataset_s}, true) as begins
            from cells_dataset),
        starts as (select dataset, count(*) as n_passes, max(cycle) as cycle, max(first_at) as pass_start
            from begun where begins group by dataset),
        touched as (select dataset, approx_count_distinct(did) as n_seen,
            approx_count_distinct(did) filter (where reads.cycle >= starts.cycle) as n_touched
            from reads join starts using (dataset) group by dataset),
        passes as (select dataset, n_seen::double as dataset_n_files,
            least(n_touched / n_seen, 1.0)::double as dataset_touched_share,
            n_passes::double as dataset_n_passes, ({as_of_s} - pass_start)::double as dataset_pass_age_s,
            n_touched * 3600.0 / greatest({as_of_s} - pass_start, 1) as dataset_pass_rate
            from starts join touched using (dataset))"""
