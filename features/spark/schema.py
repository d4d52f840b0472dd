"""A table of `features.schema` as Spark sees it."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from features.schema import CELL_FIELDS, Table

_SPARK: dict[str, DataType] = {
    "string": StringType(),
    "long": LongType(),
    "double": DoubleType(),
    "bool": BooleanType(),
    "timestamp": TimestampType(),
    "strings": ArrayType(StringType()),
}
_SPARK["cells"] = ArrayType(StructType([StructField(name, _SPARK[kind]) for name, kind in CELL_FIELDS]))


def struct_type(table: Table, *, with_partition: bool = False) -> StructType:
    """The StructType of `table`'s stored columns, in order; then its partition columns if asked.

    Every field is nullable, as Spark reads files so; the table store checks required columns.
    """
    fields = [StructField(column.name, _SPARK[column.kind]) for column in table.columns]
    if with_partition:
        fields += [StructField(name, StringType()) for name in table.partition]
    return StructType(fields)
