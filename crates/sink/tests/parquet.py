"""Reads Parquet files with pyarrow and with DuckDB and compares every value with JSON lines. For each NAME.jsonl in a folder, the files
are NAME.parquet, or all below records/table=NAME, in the order of their names.

usage: parquet.py FOLDER
"""
import base64, itertools, json, pathlib, sys

import duckdb, pyarrow as pa, pyarrow.parquet as pq

folder = pathlib.Path(sys.argv[1])


def signed(number):
    """A number as a column of signed ones has it."""
    return number - (1 << 64) if number >= 1 << 63 else number


def data(row, name, as_text):
    """Bytes: JSON has them in base64, and those of a datagram as text wherever they are text."""
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"])
    value = row.get(name)
    return value if value is None else value.encode() if as_text else base64.b64decode(value)


def wanted(table, column, rows):
    """The values of a column, from JSON lines."""
    moment = column.type == pa.timestamp("us", tz="UTC")
    values = [row.get(f"{column.name}_unix_ns" if moment else column.name) for row in rows]
    if moment:
        return [value if value is None else value // 1000 for value in values]
    if pa.types.is_binary(column.type):
        return [data(row, column.name, table == "datagrams") for row in rows]
    if pa.types.is_string(column.type):
        # A word without a name is a number there.
        return [str(value) if isinstance(value, int) else value for value in values]
    if pa.types.is_boolean(column.type):
        return values
    assert column.type in (pa.int32(), pa.int64()), column
    return [value if value is None else signed(value) for value in values]


def same(column, found, expected):
    if column in ("tags", "key"):
        found = [value if value is None else json.loads(value) for value in found]
    if found != expected:
        rows = enumerate(zip(found, expected, strict=True))
        raise AssertionError(f"{column}: {next((row, pair) for row, pair in rows if pair[0] != pair[1])}")


def read(name):
    paths = sorted(folder.glob(f"{name}.parquet")) or sorted(folder.glob(f"records/table={name}/**/*.parquet"))
    assert paths, f"no files of {name}"
    return [pq.ParquetFile(path) for path in paths], [str(path) for path in paths]


def check_metadata(name, file, runs):
    """What a file says of itself, and the statistics of each row group, by which readers skip it."""
    metadata = file.metadata
    said = metadata.metadata
    assert said[b"weir.table"] == name.encode() and said[b"weir.version"], said
    named = {int(run) for run in said[b"weir.run_ids"].split(b",") if run}
    assert len(named) == 64 or named == set(runs), (named, runs)
    for group in range(metadata.num_row_groups):
        part = metadata.row_group(group)
        assert part.num_rows <= 65536, part
        for at in range(part.num_columns):
            column = part.column(at)
            if pa.types.is_binary(file.schema_arrow.field(column.path_in_schema).type):
                continue
            statistics = column.statistics
            assert statistics is not None and statistics.has_null_count, column
            assert statistics.has_min_max == (statistics.null_count < part.num_rows), column


def compare(name, file, path, rows):
    """One file with the rows that it should have."""
    table = file.read()
    unknown = {key.removesuffix("_base64") for row in rows for key in row} - set(table.schema.names)
    assert not unknown, unknown
    check_metadata(name, file, {row["run_id"] for row in rows if "run_id" in row})

    # DuckDB hands its columns over as Arrow's, so that they are compared without a step in Python for each value.
    other = duckdb.sql(f"SELECT * FROM read_parquet('{path}', hive_partitioning = false)").to_arrow_table()
    assert other.column_names == table.column_names
    for column in table.schema:
        values = table[column.name]
        found = values.cast(pa.int64()) if pa.types.is_timestamp(column.type) else values
        same(column.name, found.to_pylist(), wanted(name, column, rows))
        assert other[column.name].cast(column.type).combine_chunks() == values.combine_chunks(), f"duckdb: {column}"


names = sorted(path.stem for path in folder.glob("*.jsonl"))
assert names, "nothing to compare"
for name in names:
    files, paths = read(name)
    schema = files[0].schema_arrow
    with open(folder / f"{name}.jsonl", encoding="utf-8", newline="\n") as lines:
        # A file at a time: the values of a million rows are more than fits into memory.
        for file, path in zip(files, paths):
            rows = [json.loads(line) for line in itertools.islice(lines, file.metadata.num_rows)]
            assert len(rows) == file.metadata.num_rows, f"{path}: {len(rows)} rows are left"
            compare(name, file, path, rows)
        assert not lines.readline(), f"rows of {name} are in no file"

    count = sum(file.metadata.num_rows for file in files)
    groups = sum(file.metadata.num_row_groups for file in files)
    print(f"{name}: {count} rows, {len(schema)} columns, {len(files)} files, {groups} row groups")
