"""Takes what is in three topics by the tables of deploy/clickhouse/kafka.sql, and says on standard output, as JSON, whether it is what
files hold that were inserted directly.

usage: consume.py REPOSITORY BROKER SOCKETS_TOPIC POLLS_TOPIC DATAGRAMS_TOPIC FILE...

The engine as a library never runs the views in the background, which is ClickHouse's own part: here each view's query is run until all that is
wanted has come. One run ends when the broker is silent for a moment, as a busy one is.
"""
import json, os, pathlib, re, sys, time

from chdb import session

repository, (broker, *topics), files = pathlib.Path(sys.argv[1]), sys.argv[2:6], [pathlib.Path(file).absolute() for file in sys.argv[6:]]
TABLES = ("sockets", "polls", "datagrams")
folder = repository / "deploy/clickhouse"
# Where the engine looks for schemas.
os.chdir(repository / "proto")
# In memory: a folder with a table of Kafka's could not be opened again.
engine = session.Session()
VIEW = re.compile(r"\s*CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) TO (\w+) AS\s+(SELECT (.*?)\s+FROM\s.*)", re.S)


def statements(name):
    lines = [line for line in (folder / name).read_text().splitlines() if not line.lstrip().startswith("--")]
    return [part for part in "\n".join(lines + [""]).split(";\n") if part.strip()]


def rows(query):
    settings = " SETTINGS output_format_json_quote_64bit_integers = 0"
    return [json.loads(line) for line in engine.query(query + settings, "JSONEachRow").bytes().splitlines()]


def make_database(name, *files):
    engine.query(f"CREATE DATABASE {name}")
    engine.query(f"USE {name}")
    for file in files:
        for statement in statements(file):
            engine.query(statement)


def contents(database):
    """How many rows each table has, and a sum that any other value in any of them changes."""
    query = "SELECT count() AS count, groupBitXor(cityHash64(tuple(* EXCEPT ingest_time))) AS sum FROM {}.{}"
    return {table: rows(query.format(database, table))[0] for table in TABLES}


make_database("direct", "sockets.sql", "datagrams.sql", "files.sql")
for file in files:
    table, message = ("datagrams", "DatagramRecord") if file.stem == "datagrams" else ("records_protobuf", "SocketRecord")
    with engine.send_insert(f"INSERT INTO {table} SETTINGS format_schema = 'weir_store.proto:{message}'", "Protobuf") as insertion:
        insertion.append(file.read_bytes())
        insertion.finish()

DEADLINE_S = 60


def read_kafka(suffix, wanted):
    """Makes the tables of kafka.sql for these topics, runs the query of each view until so many rows are in its target, and drops what reads."""
    views = {}
    for statement in statements("kafka.sql"):
        # A group of its own: the last one's members may not have left yet.
        statement = statement.replace("kafka:9092", broker).replace("'clickhouse-weir", f"'clickhouse{suffix}-weir")
        for table, topic in zip(TABLES, topics):
            statement = statement.replace(f"'weir.{table}'", f"'{topic}{suffix}'")
        if view := VIEW.fullmatch(statement):
            views[view[1]] = statement, *view.groups()[1:]
            continue
        try:
            engine.query(statement)
        except Exception as error:
            # What starts to read in the background; the table is there.
            assert "Shutdown" in str(error), error
    for name, count in wanted.items():
        _, target, query, columns = views[name]
        names = re.findall(r" AS (\w+)", columns)
        into = f"{target} ({', '.join(names)})" if names else f"{target} (* EXCEPT ingest_time)"
        until = time.monotonic() + DEADLINE_S
        while rows(f"SELECT count() AS count FROM {target}")[0]["count"] < count and time.monotonic() < until:
            engine.query(f"INSERT INTO {into} {query} SETTINGS stream_like_engine_allow_direct_select = 1")
    # The engine takes the views as they are.
    for name, (statement, *_) in views.items():
        engine.query(statement)
        engine.query(f"DROP VIEW {name}")
    for table in TABLES:
        engine.query(f"DROP TABLE {table}_kafka")


make_database("through_kafka", "sockets.sql", "datagrams.sql")
direct = contents("direct")
read_kafka("", {f"{table}_kafka_to_{table}": direct[table]["count"] for table in TABLES})
answer = {"direct": direct, "through_kafka": contents("through_kafka")}
make_database("broken", "sockets.sql", "datagrams.sql")
# All of them into one table, one from each topic.
read_kafka("-broken", {f"{table}_kafka_to_errors": at for at, table in enumerate(TABLES, start=1)})
answer["errors"] = rows("SELECT topic, message FROM kafka_errors ORDER BY topic")
print(json.dumps(answer))
