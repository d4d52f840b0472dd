"""Rejected rows in the table `rejects`: those of an input replace its earlier ones."""

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import REJECTS, arrow_schema
from jobs.ground.store.tables import Tables, repeated_on_conflict


@repeated_on_conflict
def replace_rejects(tables: Tables, source: str, day: str, inputs: pa.Array, rejects: pa.Table) -> None:
    """Replace the rejects of `inputs` of `source` on `day`, which others may do at the same time."""
    base, key = tables.head(REJECTS), (day,)
    if not rejects.num_rows and key not in base.partitions:
        return
    columns = arrow_schema(REJECTS).names
    old = base.rows_of([key], columns)
    is_replaced = pc.and_(pc.equal(old["source"], source), pc.is_in(old["input"], inputs))
    kept_and_new = [old.filter(pc.invert(is_replaced)), rejects.select(columns).cast(old.schema)]
    rows = pa.concat_tables(kept_and_new).sort_by([(name, "ascending") for name in REJECTS.key])
    tables.replace_partition(REJECTS, rows, key, base=base)
