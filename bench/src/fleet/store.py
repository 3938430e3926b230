"""What the rows of a fleet take in ClickHouse: disk by codec, parts, and processor time of inserts. Says it on standard output, as JSON.

usage: store.py REPOSITORY FOLDER. Each `*.pb` in the folder is what one host made in one poll. Next to each a `*.rowbinary` is written
with the same rows, and one `all.parquet` with all of them.
"""
import json, os, pathlib, sys, tempfile, time

from chdb import session

repository, folder = (pathlib.Path(path).absolute() for path in sys.argv[1:])
batches = sorted(folder.glob("*.pb"))
# Where the engine looks for schemas.
os.chdir(repository / "proto")
place = tempfile.TemporaryDirectory()
engine = session.Session(place.name)
# What the tables say, and what else could stand in its place.
CODECS = {"ZSTD(1)": "ZSTD(1)", "LZ4": "LZ4", "ZSTD(3)": "ZSTD(3)"}
BATCHES_PER_INSERT = 64


def statements(name):
    lines = [line for line in (repository / "deploy/clickhouse" / name).read_text().splitlines() if not line.lstrip().startswith("--")]
    return [part for part in "\n".join(lines + [""]).split(";\n") if part.strip()]


def row(query):
    (line,) = engine.query(query, "JSONEachRow").bytes().splitlines()
    return {name: float(value) for name, value in json.loads(line).items()}


def parts(table):
    return row(f"SELECT count() AS parts, sum(rows) AS rows, sum(bytes_on_disk) AS bytes FROM system.parts WHERE active AND database = currentDatabase() AND table = '{table}'")


def insert(data):
    with engine.send_insert("INSERT INTO sockets SETTINGS format_schema = 'weir_store.proto:SocketRecord'", "Protobuf") as insertion:
        insertion.append(data)
        insertion.finish()


def fill(name, codec, files):
    """Makes the tables with this codec, inserts everything, and returns what it took."""
    engine.query(f"CREATE DATABASE {name}")
    engine.query(f"USE {name}")
    for file in files:
        for statement in statements(file):
            engine.query(statement.replace("ZSTD(1)", codec))
    engine.query("SYSTEM STOP MERGES")
    inserts = [b"".join(batch.read_bytes() for batch in batches[at : at + BATCHES_PER_INSERT]) for at in range(0, len(batches), BATCHES_PER_INSERT)]
    began, cpu = time.monotonic(), sum(os.times()[:2])
    for data in inserts:
        insert(data)
    taken = {"seconds": time.monotonic() - began, "cpu_seconds": sum(os.times()[:2]) - cpu}
    before = parts("sockets")
    engine.query("SYSTEM START MERGES")
    engine.query("OPTIMIZE TABLE sockets FINAL")
    after = parts("sockets")
    rows = after["rows"]
    return {
        "codec": codec,
        "rows": rows,
        "rows_per_insert": rows / len(inserts),
        "parts_per_insert": before["parts"] / len(inserts),
        "bytes_per_row_as_inserted": before["bytes"] / rows,
        "bytes_per_row_merged": after["bytes"] / rows,
        "rows_per_second": rows / taken["seconds"],
        "rows_per_cpu_second": rows / taken["cpu_seconds"],
    }


codecs = [fill(f"codec_{number}", codec, ["sockets.sql"]) for number, codec in enumerate(CODECS)]
rollup = fill("rollup", "ZSTD(1)", ["sockets.sql", "rollup.sql"])
engine.query("OPTIMIZE TABLE sockets_by_minute FINAL")
minutes = parts("sockets_by_minute")

# Next to each batch the same rows as RowBinary: a host's poll has one run_id and one number.
engine.query("CREATE TABLE one AS sockets ENGINE = Memory")
for batch in batches:
    engine.query("TRUNCATE TABLE one")
    with engine.send_insert("INSERT INTO one SETTINGS format_schema = 'weir_store.proto:SocketRecord'", "Protobuf") as insertion:
        insertion.append(batch.read_bytes())
        insertion.finish()
    batch.with_suffix(".rowbinary").write_bytes(engine.query("SELECT * EXCEPT ingest_time FROM one", "RowBinary").bytes())
settings = "output_format_parquet_compression_method = 'zstd', output_format_parquet_row_group_size = 100000"
parquet = engine.query(f"SELECT * EXCEPT ingest_time FROM sockets ORDER BY time SETTINGS {settings}", "Parquet").bytes()
(folder / "all.parquet").write_bytes(parquet)

print(json.dumps({
    "engine": engine.query("SELECT version()", "TSV").bytes().decode().strip(),
    "codecs": codecs,
    "with_rollup": rollup,
    "rollup_rows": minutes["rows"],
    "rollup_bytes_per_row": minutes["bytes"] / minutes["rows"],
}))
