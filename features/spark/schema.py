"""Spark's schema of a table of `features.schema`."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from features.schema import Table

_SPARK: dict[str, DataType] = {
    "string": StringType(),
    "long": LongType(),
    "double": DoubleType(),
    "float": FloatType(),
    "bool": BooleanType(),
    "timestamp": TimestampType(),
    "strings": ArrayType(StringType()),
    "bytes": BinaryType(),
}


def struct_type(table: Table, *, with_partition: bool = False) -> StructType:
    """The StructType of the stored columns of `table`, in order, and of its partition columns on request.

    All fields are nullable, as when Spark reads files; the table store checks required columns.
    """
    fields = [StructField(column.name, _SPARK[column.kind]) for column in table.columns]
    if with_partition:
        fields += [StructField(name, StringType()) for name in table.partition]
    return StructType(fields)
