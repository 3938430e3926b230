"""Asks the queries of deploy/clickhouse in ClickHouse's engine, of files that a collector wrote; answers on standard output, as JSON.

usage: ask.py REPOSITORY FILE... The files hold records and totals between each other, as protobuf; `datagrams.pb` holds datagrams, and
`flows.jsonl` all rows of sFlow as lines.
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


def insert(into, form, file):
    with engine.send_insert(f"INSERT INTO {into}", form) as insertion:
        insertion.append(file.read_bytes())
        insertion.finish()


engine.query("CREATE DATABASE weir")
engine.query("USE weir")
for name in ("sockets", "datagrams", "flows", "rollup", "rollup_flows", "retention", "retention_flows", "files"):
    for statement in statements(folder / f"{name}.sql"):
        engine.query(statement)
for file in files:
    if file.stem == "flows":
        for table in ("flows", "counters", "flow_totals"):
            insert(f"{table}_json", "JSONEachRow", file)
        continue
    table, message = ("datagrams", "DatagramRecord") if file.stem == "datagrams" else ("records_protobuf", "SocketRecord")
    insert(f"{table} SETTINGS format_schema = 'weir_store.proto:{message}'", "Protobuf", file)
# A host that stopped an hour ago.
gone = "'gone' AS host, 'gone' AS host_id, 1 AS run_id, 0 AS next_sequence, time_unix_ns - 3600000000000 AS time_unix_ns"
engine.query(f"INSERT INTO polls SELECT * REPLACE ({gone}) FROM polls ORDER BY poll LIMIT 1")

answers = {}
for path in sorted((folder / "queries").glob("*.sql")):
    (query,) = statements(path)
    answers[path.stem] = rows(query)
answers["runs"], answers["gaps"] = map(rows, statements(folder / "complete.sql"))
(flow_runs,) = statements(folder / "complete_flows.sql")
answers["flow_runs"] = rows(flow_runs)

# The dashboard's panels, with what Grafana puts in the place of its macros.
HOUR = r"\1 >= now() - INTERVAL 1 HOUR AND \1 <= now()"
panels = json.loads((repository / "deploy/grafana/sockets.json").read_text())["panels"]
answers["panels"] = {
    panel["title"]: len(rows(re.sub(r"\$__timeFilter\((\w+)\)", HOUR, target["rawSql"]))) for panel in panels for target in panel["targets"]
}

# Parts merge whenever they like: the answers stay.
engine.query("OPTIMIZE TABLE sockets_by_minute FINAL")
engine.query("OPTIMIZE TABLE flows_by_minute FINAL")
for name in ("top_talkers", "retransmission_share", "service_map", "top_flows"):
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
answers["kept_of_two"] = {}
for table in ("sockets", "polls", "datagrams", "flows", "counters", "flow_totals"):
    count = f"SELECT count() AS count FROM {table}"
    (before,) = rows(count)
    engine.query(f"INSERT INTO {table} (time_unix_ns, ingest_time) VALUES (1, now() - INTERVAL 31 DAY), (2, now() - INTERVAL 29 DAY)")
    engine.query(f"OPTIMIZE TABLE {table} FINAL")
    (after,) = rows(count)
    answers["kept_of_two"][table] = after["count"] - before["count"]

# Two rows that are taken away, one of each kind, are missed; a copy of another does not stand for them.
for table in ("flows", "counters"):
    engine.query(f"INSERT INTO {table} SELECT * FROM {table} WHERE run_id > 0")
    engine.query(f"ALTER TABLE {table} DELETE WHERE sequence = (SELECT max(sequence) FROM {table}) SETTINGS mutations_sync = 2")
answers["flow_runs_without_two"] = rows(flow_runs)

print(json.dumps(answers))
