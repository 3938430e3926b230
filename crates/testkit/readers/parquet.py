"""The rows of Parquet files as lines of JSON, by a reader that is not ours.

usage: parquet.py duckdb|arrow FILE...
"""
import base64, datetime, json, sys


def plain(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    raise TypeError(f"{type(value)} in a row")


def arrow(files):
    import pyarrow.parquet

    for file in files:
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches():
            yield from batch.to_pylist()


def duckdb(files):
    import duckdb

    duckdb.execute("SET TimeZone = 'UTC'")
    for file in files:
        result = duckdb.execute("SELECT * FROM read_parquet(?)", [file])
        names = [column[0] for column in result.description]
        while rows := result.fetchmany(10_000):
            yield from (dict(zip(names, row)) for row in rows)


reader, *files = sys.argv[1:]
for row in {"arrow": arrow, "duckdb": duckdb}[reader](files):
    sys.stdout.write(json.dumps(row, default=plain) + "\n")
