"""The rows of Parquet files as lines of JSON, by a reader that is not ours.

usage: parquet.py duckdb|arrow FILE...
       parquet.py ask COLUMN,COLUMN... FILE...
                                 the rows of each SELECT on standard input from the view `sockets`, by duckdb
       parquet.py count          for each path on standard input, how many rows arrow and duckdb read
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


def count():
    import duckdb, pyarrow.parquet

    for line in sys.stdin:
        path = line.rstrip("\n")
        with pyarrow.parquet.ParquetFile(path) as file:
            by_arrow = file.read().num_rows
        by_duckdb = len(duckdb.execute("SELECT * FROM read_parquet(?)", [path]).fetchall())
        print(by_arrow, by_duckdb, flush=True)


def ask(names, files):
    import duckdb

    described = duckdb.execute("DESCRIBE SELECT * FROM read_parquet(?)", [files]).fetchall()
    kinds = {name: kind for name, kind, *_ in described}
    columns = ", ".join(as_in_the_store(name, kinds[name]) for name in names.split(","))
    quoted = ", ".join(f"'{file}'" for file in files)
    duckdb.execute(f"CREATE VIEW sockets AS SELECT {columns} FROM read_parquet([{quoted}])")
    for line in sys.stdin:
        rows = duckdb.execute(json.loads(line)).fetchall()
        print(json.dumps(rows, default=plain), flush=True)


def as_in_the_store(name, kind):
    """SQLite has neither times nor truth values."""
    if kind.startswith("TIMESTAMP"):
        return f"epoch_ns({name}) AS {name}"
    return f"CAST({name} AS BIGINT) AS {name}" if kind == "BOOLEAN" else name


if sys.argv[1] == "count":
    sys.exit(count())
if sys.argv[1] == "ask":
    sys.exit(ask(sys.argv[2], sys.argv[3:]))
reader, *files = sys.argv[1:]
for row in {"arrow": arrow, "duckdb": duckdb}[reader](files):
    sys.stdout.write(json.dumps(row, default=plain) + "\n")
