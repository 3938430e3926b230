"""Takes what is in topics by the tables of deploy/clickhouse/kafka.sql or kafka_flows.sql, and says on standard output, as JSON, what came
of it and what came of the same rows in files that were inserted directly.

usage: consume.py REPOSITORY BROKER TABLE=TOPIC,... FILE... The topic of `flows` has the rows of all three tables of flows.sql.

The engine as a library never runs the views in the background, which is ClickHouse's own part: here each view's query is run until all that is
wanted has come. One run ends when the broker is silent for a moment, as a busy one is.
"""
import json, os, pathlib, re, sys, time

from chdb import session

repository, broker, files = pathlib.Path(sys.argv[1]), sys.argv[2], [pathlib.Path(file).absolute() for file in sys.argv[4:]]
TOPICS = dict(pair.split("=") for pair in sys.argv[3].split(","))
IS_FLOWS = "flows" in TOPICS
TABLES = ("flows", "counters", "flow_totals") if IS_FLOWS else ("sockets", "polls", "datagrams")
TABLE_FILES = ("flows.sql",) if IS_FLOWS else ("sockets.sql", "datagrams.sql")
# Those of sockets have the table of errors.
KAFKA_FILES = ("kafka.sql", "kafka_flows.sql") if IS_FLOWS else ("kafka.sql",)
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


def insert(into, form, file):
    with engine.send_insert(f"INSERT INTO {into}", form) as insertion:
        insertion.append(file.read_bytes())
        insertion.finish()


make_database("direct", *TABLE_FILES, *(() if IS_FLOWS else ("files.sql",)))
for file in files:
    if IS_FLOWS:
        for table in TABLES:
            insert(f"{table}_json", "JSONEachRow", file)
        continue
    table, message = ("datagrams", "DatagramRecord") if file.stem == "datagrams" else ("records_protobuf", "SocketRecord")
    insert(f"{table} SETTINGS format_schema = 'weir_store.proto:{message}'", "Protobuf", file)


# Of a group of consumers, and how many groups may try.
DEADLINE_S, GROUPS = 30, 4
MAKES_TABLE = re.compile(r"\s*CREATE TABLE IF NOT EXISTS (\w+)_kafka\b.*", re.S)


def belongs(statement):
    """Whether it is about these tables, or about errors alone."""
    return "_kafka" not in statement or any(f"{table}_kafka" in statement for table in TABLES)


def make_table(statement):
    try:
        engine.query(statement)
    except Exception as error:
        # What starts to read in the background; the table is there.
        assert "Shutdown" in str(error), error


def take(insertion):
    """Whether the broker answered in time. If not, nobody knows what it has noted as taken."""
    try:
        engine.query(insertion)
    except Exception as error:
        if "Local: Timed out" not in str(error):
            raise
        return False
    return True


def read_kafka(suffix, wanted):
    """Makes the tables that read from Kafka, for these topics, runs the query of each view until so many rows are in its target, and drops what reads."""
    views, tables = {}, {}
    for statement in (statement for file in KAFKA_FILES for statement in statements(file) if belongs(statement)):
        # A group of its own: the last one's members may not have left yet.
        statement = statement.replace("kafka:9092", broker).replace("'clickhouse-weir", f"'clickhouse{suffix}-weir")
        for table, topic in TOPICS.items():
            statement = statement.replace(f"'weir.{table}'", f"'{topic}{suffix}'")
        if view := VIEW.fullmatch(statement):
            views[view[1]] = statement, *view.groups()[1:]
            continue
        if table := MAKES_TABLE.fullmatch(statement):
            tables[table[1]] = statement
        make_table(statement)
    for name, count in wanted.items():
        _, target, query, columns = views[name]
        names = re.findall(r" AS (\w+)", columns)
        into = f"{target} ({', '.join(names)})" if names else f"{target} (* EXCEPT ingest_time)"
        table = name.partition("_kafka")[0]
        # All topics' errors are in one table.
        forget = f"ALTER TABLE {target} DELETE WHERE topic = '{TOPICS[table]}{suffix}' SETTINGS mutations_sync = 2" if suffix else f"TRUNCATE TABLE {target}"
        for group in range(GROUPS):
            until = time.monotonic() + DEADLINE_S
            while (has := rows(f"SELECT count() AS count FROM {target}")[0]["count"]) < count and time.monotonic() < until:
                if not take(f"INSERT INTO {into} {query} SETTINGS stream_like_engine_allow_direct_select = 1"):
                    break
            if has >= count:
                break
            # On a busy machine a group may be given nothing more, by a broker that takes its member for gone, or be answered too late. Another begins at the
            # first message.
            engine.query(f"DROP TABLE {table}_kafka")
            make_table(tables[table].replace("'clickhouse", f"'clickhouse{group}"))
            engine.query(forget)
    # The engine takes the views as they are.
    for name, (statement, *_) in views.items():
        engine.query(statement)
        engine.query(f"DROP VIEW {name}")
    for table in TABLES:
        engine.query(f"DROP TABLE {table}_kafka")


make_database("through_kafka", *TABLE_FILES)
direct = contents("direct")
read_kafka("", {f"{table}_kafka_to_{table}": direct[table]["count"] for table in TABLES})
answer = {"direct": direct, "through_kafka": contents("through_kafka")}
make_database("broken", *TABLE_FILES)
# All of them into one table, one from each topic.
read_kafka("-broken", {f"{table}_kafka_to_errors": at for at, table in enumerate(TOPICS, start=1)})
answer["errors"] = rows("SELECT topic, message FROM kafka_errors ORDER BY topic")
print(json.dumps(answer))
