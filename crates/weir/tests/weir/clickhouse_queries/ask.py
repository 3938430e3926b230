"""Asks the queries of deploy/clickhouse in ClickHouse's engine, of files that a collector wrote; answers on standard output, as JSON.

usage: ask.py REPOSITORY FILE... The files hold records and totals between each other, as protobuf; `datagrams.pb` holds datagrams.
"""
import json, os, pathlib, re, sys

from chdb import session

repository, *files = map(pathlib.Path, sys.argv[1:])
files = [file.absolute() for file in files]
folder = repository / "deploy/clickhouse"
# Where the engine looks for schemas.
os.chdir(repository / "proto")
engine = session.Session()


def statements(path):
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("--")]
    return [part for part in "\n".join(lines + [""]).split(";\n") if part.strip()]


def rows(query):
    settings = " SETTINGS output_format_json_quote_64bit_integers = 0, output_format_json_quote_denormals = 1"
    return [json.loads(line) for line in engine.query(query + settings, "JSONEachRow").bytes().splitlines()]


engine.query("CREATE DATABASE weir")
engine.query("USE weir")
for name in ("sockets", "datagrams", "rollup", "retention", "files"):
    for statement in statements(folder / f"{name}.sql"):
        engine.query(statement)
for file in files:
    table, message = ("datagrams", "DatagramRecord") if file.stem == "datagrams" else ("records_protobuf", "SocketRecord")
    with engine.send_insert(f"INSERT INTO {table} SETTINGS format_schema = 'weir_store.proto:{message}'", "Protobuf") as insertion:
        insertion.append(file.read_bytes())
        insertion.finish()
# A host that stopped an hour ago.
gone = "'gone' AS host, 'gone' AS host_id, 1 AS run_id, 0 AS next_sequence, time_unix_ns - 3600000000000 AS time_unix_ns"
engine.query(f"INSERT INTO polls SELECT * REPLACE ({gone}) FROM polls ORDER BY poll LIMIT 1")

answers = {}
for path in sorted((folder / "queries").glob("*.sql")):
    (query,) = statements(path)
    answers[path.stem] = rows(query)
answers["runs"], answers["gaps"] = map(rows, statements(folder / "complete.sql"))

# The dashboard's panels, with what Grafana puts in the place of its macros.
HOUR = r"\1 >= now() - INTERVAL 1 HOUR AND \1 <= now()"
panels = json.loads((repository / "deploy/grafana/sockets.json").read_text())["panels"]
answers["panels"] = {
    panel["title"]: len(rows(re.sub(r"\$__timeFilter\((\w+)\)", HOUR, target["rawSql"]))) for panel in panels for target in panel["targets"]
}

# Parts merge whenever they like: the answers stay.
engine.query("OPTIMIZE TABLE sockets_by_minute FINAL")
for name in ("top_talkers", "retransmission_share", "service_map"):
    (query,) = statements(folder / f"queries/{name}.sql")
    assert rows(query) == answers[name], name

# A question about an hour reads that hour: two days of which a granule is a tenth of a minute.
engine.query("CREATE TABLE wide AS sockets")
engine.query("INSERT INTO wide (time_unix_ns, host, cookie) SELECT toUInt64(toUnixTimestamp(now())) * 1000000000 - number * 100000000, 'h', 1 FROM numbers(1728000)")
engine.query("OPTIMIZE TABLE wide FINAL")
plan = rows("EXPLAIN indexes = 1 SELECT count() FROM wide WHERE time >= now() - INTERVAL 1 HOUR")
granules = [line["explain"].split()[-1] for line in plan if "Granules:" in line["explain"]][-1]
answers["granules_of_an_hour"] = [int(number) for number in granules.split("/")]

# What is older than its time goes, and the rest stays.
count = "SELECT count() AS count FROM sockets"
(before,) = rows(count)
engine.query("INSERT INTO sockets (time_unix_ns, cookie, ingest_time) VALUES (1, 1, now() - INTERVAL 31 DAY), (1, 2, now() - INTERVAL 29 DAY)")
engine.query("OPTIMIZE TABLE sockets FINAL")
(after,) = rows(count)
answers["kept_of_two"] = after["count"] - before["count"]

print(json.dumps(answers))
