"""Tables on their way through Spark, which has no unsigned integers and no arrays of fixed length."""

from __future__ import annotations

import pyarrow as pa

_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.binary(): "binary",
}


def wire_type(kind: pa.DataType) -> pa.DataType:
    """The type in which Spark carries values of a column of an event or output record."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(wire_type(kind.value_type))
    return _SIGNED.get(kind, kind)


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as Spark carries them."""
    return pa.schema([pa.field(field.name, wire_type(field.type)) for field in schema])


def spark_type(kind: pa.DataType) -> str:
    """A type of a wire schema as Spark writes it."""
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES[kind]


def ddl(schema: pa.Schema) -> str:
    """The columns of a wire schema as Spark writes them."""
    return ", ".join(f"`{field.name}` {spark_type(field.type)}" for field in schema)


def to_wire(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The table as batches of this wire schema."""
    return table.cast(schema).combine_chunks().to_batches()


def field_column(name: str) -> str:
    """The column of a field of a consumer's rows, which no other column can be."""
    return f":{name}"


def from_wire(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`seq` and the fields of a consumer's rows, in the types of `schema`."""
    columns = [table.column("seq"), *(table.column(field_column(name)) for name in schema.names)]
    return pa.table(columns, names=["seq", *schema.names]).cast(schema.insert(0, pa.field("seq", pa.int64())))
