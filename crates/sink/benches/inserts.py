"""Inserts the same rows into ClickHouse's engine as Native and as Protobuf, in turn, and says what each took at best.

usage: inserts.py REPOSITORY FOLDER COLUMNS ROUNDS. FOLDER has the files Native and Protobuf.
"""
import os, pathlib, sys, tempfile, time

from chdb import session

repository, folder = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
columns, rounds = sys.argv[3], int(sys.argv[4])
# Where the engine looks for schemas.
os.chdir(repository / "proto")
place = tempfile.TemporaryDirectory()
engine = session.Session(place.name)
FORMATS = {"Native": f"({columns})", "Protobuf": "SETTINGS format_schema = 'weir_store.proto:SocketRecord'"}
TABLES = {"sockets": "its table", "forgetting": "a table of the engine Null"}

sql = (repository / "deploy/clickhouse/sockets.sql").read_text()
engine.query("CREATE DATABASE bench")
engine.query("USE bench")
start = sql.index("CREATE TABLE IF NOT EXISTS sockets\n")
engine.query(sql[start : sql.index("\n;", start)])
engine.query("CREATE TABLE forgetting AS sockets ENGINE = Null")
engine.query("SYSTEM STOP MERGES")


def insert(table, form, data):
    """Processor seconds, seconds, and rows."""
    began, cpu = time.monotonic(), sum(os.times()[:2])
    with engine.send_insert(f"INSERT INTO {table} {FORMATS[form]}", form) as insertion:
        insertion.append(data)
        rows = insertion.finish().rows_written
    return sum(os.times()[:2]) - cpu, time.monotonic() - began, rows


def contents():
    query = f"SELECT count(), sum(cityHash64({columns})) FROM sockets"
    return engine.query(query, "TSV").bytes()


data = {form: (folder / form).read_bytes() for form in FORMATS}
for table, words in TABLES.items():
    taken, seen = {form: [] for form in FORMATS}, set()
    for _ in range(rounds):
        for form in FORMATS:
            taken[form].append(insert(table, form, data[form]))
            if table == "sockets":
                seen.add(contents())
                engine.query("TRUNCATE TABLE sockets")
    assert len(seen) <= 1, f"they are not the same rows: {seen}"
    for form, times in taken.items():
        rows = times[0][2]
        cpu, wall = (min(time[at] for time in times) * 100_000 / rows for at in (0, 1))
        print(f"{form:9}: {cpu:5.2f} s of processor time, {wall:5.2f} s by the clock for 100,000 rows into {words}")
