"""Makes the tables of deploy/clickhouse in ClickHouse's engine, inserts the same records in every way, and reads them back.

usage: clickhouse.py FOLDER REPOSITORY. The folder holds sockets and totals between each other, and each kind alone, datagrams too, as
protobuf, as JSON lines and as Native. What is expected is what Python's own json reads of the lines.
"""
import base64, ipaddress, json, os, pathlib, sys

from chdb import session

folder, repository = map(pathlib.Path, sys.argv[1:])
# Where the engine looks for schemas.
os.chdir(repository / "proto")
engine = session.Session()

schema = json.loads((repository / "docs/record.schema.json").read_text())


def properties(name):
    return json.loads((repository / f"docs/{name}.schema.json").read_text())["properties"]


KINDS = {"sockets": schema["properties"], "polls": schema["$defs"]["PollTotals"]["properties"], "datagrams": properties("datagram")}
KINDS |= {"flows": properties("flow"), "counters": properties("counters"), "flow_totals": properties("flow_totals")}
MESSAGES = {"sockets": "SocketRecord", "polls": "PollTotals", "datagrams": "DatagramRecord", "flows": "FlowRecord", "counters": "CounterRecord", "flow_totals": "FlowTotals"}
# Fields that are text if they can be, and else base64 under another name.
DATA = ("payload", "structured_data", "message")
# What a column has that cannot be NULL.
DEFAULTS = {"sockets": {"record_kind": "unspecified", "time_unix_ns": 0, "cookie": 0, "host": "", "tags": {}}, "polls": {"time_unix_ns": 0, "host": "", "tags": {}}}
DEFAULTS["datagrams"] = {"record_kind": "unspecified", "time_unix_ns": 0, "host": "", "tags": {}, "listener": "", "source_address": "::", "payload": ""}
DEFAULTS["flow_totals"] = {"record_kind": "unspecified", "time_unix_ns": 0, "host": "", "tags": {}}
DEFAULTS["flows"] = DEFAULTS["flow_totals"] | {"definition": "", "key": {}}
DEFAULTS["counters"] = DEFAULTS["flow_totals"] | {"agent": "::"}
ORDERS = {"polls": "run_id", "flow_totals": "run_id, next_sequence"}


def statements(name):
    text = (repository / "deploy/clickhouse" / name).read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    # Comments of columns have semicolons too, but none at the end of a line.
    return [part for part in "\n".join(lines + [""]).split(";\n") if part.strip()]


def make_database(name):
    engine.query(f"CREATE DATABASE {name}")
    engine.query(f"USE {name}")
    for statement in statements("sockets.sql") + statements("files.sql") + statements("datagrams.sql") + statements("flows.sql"):
        engine.query(statement)


def rows(query):
    settings = " SETTINGS output_format_json_quote_64bit_integers = 0"
    return [json.loads(line) for line in engine.query(query + settings, "JSONEachRow").bytes().splitlines()]


def insert(table, form, data, schema=None):
    settings = f" SETTINGS format_schema = 'weir_store.proto:{schema}'" if schema else ""
    with engine.send_insert(f"INSERT INTO {table}{settings}", form) as insertion:
        insertion.append(data)
        insertion.finish()


def is_word(about):
    return "enum" in about.get("anyOf", [{}])[0]


def is_address(about):
    return about.get("anyOf", [{}])[0].get("format") == "ipv4"


def stored(table):
    """The rows of a table as a line of JSON has them: words by their text, bytes in base64, addresses, nothing for NULL."""
    columns = [(row["name"], row["default_type"]) for row in rows(f"DESCRIBE TABLE {table}")]
    chosen = []
    for name, kind in columns:
        about = KINDS[table].get(name)
        if about is None or kind in ("ALIAS", "MATERIALIZED"):
            continue
        if is_word(about):
            chosen.append(f"{name}_word AS `{name}!`, {name} AS `{name}#`")
        else:
            is_bytes = "contentEncoding" in about or table == "datagrams" and name in DATA
            chosen.append(f"base64Encode({name}) AS `{name}!`" if is_bytes else f"{name} AS `{name}!`")
    order = ORDERS.get(table, "run_id, sequence")
    found = []
    for row in rows(f"SELECT {', '.join(chosen)} FROM {table} ORDER BY {order}"):
        row = {name: value for name, value in row.items() if value is not None}
        numbers = {name[:-1]: value for name, value in row.items() if name.endswith("#")}
        row = {name[:-1]: value for name, value in row.items() if name.endswith("!")}
        for name, number in numbers.items():
            known = KINDS[table][name]["anyOf"][0]["enum"]
            # A number without a word is written as the number.
            assert (row[name] in known) != (row[name] == str(number)), (name, row[name], number)
            row[name] = row[name] if row[name] in known else number
        for name in row:
            if is_address(KINDS[table][name]):
                address = ipaddress.IPv6Address(row[name])
                row[name] = str(address.ipv4_mapped or address)
        found.append(row)
    return found


def expected(table):
    lines = [json.loads(line) for line in (folder / f"{table}.jsonl").read_bytes().splitlines()]
    for line in lines:
        for name, value in DEFAULTS[table].items():
            if f"{name}_base64" not in line:
                line.setdefault(name, value)
        for name in DATA if table == "datagrams" else ():
            if f"{name}_base64" in line:
                line[name] = line.pop(f"{name}_base64")
            elif name in line:
                line[name] = base64.b64encode(line[name].encode()).decode()
        for name in line:
            if is_address(KINDS[table].get(name, {})):
                line[name] = str(ipaddress.ip_address(line[name]))
    return lines


def same(way, tables=KINDS):
    for table in tables:
        found, wanted = stored(table), expected(table)
        assert len(found) == len(wanted) > 1, (way, table, len(found), len(wanted))
        for number, (a, b) in enumerate(zip(found, wanted)):
            differs = {name: (a.get(name), b.get(name)) for name in a.keys() | b.keys() if a.get(name) != b.get(name)}
            assert not differs, f"{way}, row {number} of {table}, found and wanted: {differs}"
        print(f"{way}: {len(found)} rows of {table} are the same")


def read(name):
    return (folder / name).read_bytes()


make_database("by_json")
insert("records_json", "JSONEachRow", read("mixed.jsonl"))
for table in ("datagrams", "flows", "counters", "flow_totals"):
    insert(f"{table}_json", "JSONEachRow", read(f"{table}.jsonl"))
same("JSONEachRow, records and totals in one file")

make_database("by_protobuf_row")
for table, message in MESSAGES.items():
    insert(table, "Protobuf", read(f"{table}.protobuf"), message)
same("Protobuf, each kind by itself")

make_database("by_native")
for table in KINDS:
    insert(f"{table} ({read(f'{table}.columns').decode()})", "Native", read(f"{table}.native"))
same("Native")

make_database("by_protobuf")
insert("records_protobuf", "Protobuf", read("mixed.protobuf"), "SocketRecord")
same("Protobuf, records and totals in one file", ["sockets", "polls"])
# The text of a word, and a time as such, of what was received.
engine.query("USE by_native")
of_words = rows("SELECT severity_word AS word, toString(syslog_time) AS time FROM datagrams WHERE app_name = 'sshd' AND listener = 'syslog' LIMIT 1")
assert of_words == [{"word": "notice", "time": "2026-11-22 12:00:00.250000000"}], of_words
engine.query("USE by_protobuf")

engine.query("USE by_protobuf")
of_runs, of_gaps = statements("complete.sql")
runs, count = rows(of_runs), len(expected("sockets")) // 2
assert [(run["made"], run["stored"], run["missing"]) for run in runs] == [(count, count, 0)] * 2, runs
assert rows(of_gaps) == []
# A copy is no record more, and cannot stand for one that is missing.
engine.query("INSERT INTO sockets SELECT * FROM sockets WHERE sequence = 5")
assert [run["missing"] for run in rows(of_runs)] == [0, 0]
last = count - 1
for run, sequences in (7, [123]), (2**63 - 1, [0, 200, 201, last]):
    taken = ", ".join(map(str, sequences))
    engine.query(f"ALTER TABLE sockets DELETE WHERE run_id = {run} AND sequence IN ({taken}) SETTINGS mutations_sync = 2")
missing = {run["run_id"]: run["missing"] for run in rows(of_runs)}
assert missing == {7: 1, 2**63 - 1: 4}, missing
gaps = [(gap["run_id"], gap["first_missing"], gap["last_missing"]) for gap in rows(of_gaps)]
assert gaps == [(7, 123, 123)] + [(2**63 - 1, *gap) for gap in ((0, 0), (200, 201), (last, last))], gaps
# A record that is newer than the latest totals does not hide one that is missing at their end.
sixth = "SELECT * FROM sockets WHERE run_id = 7 AND sequence = 6 LIMIT 1"
newer = f"SELECT * REPLACE (toUInt64({count + 1}) AS sequence) FROM ({sixth})"
engine.query(f"INSERT INTO sockets {newer}")
gaps = [(gap["first_missing"], gap["last_missing"]) for gap in rows(of_gaps) if gap["run_id"] == 7]
assert gaps == [(123, 123), (count, count)], gaps
print(f"{count} records a run: complete by query, and each of 5 that were taken away is found")
