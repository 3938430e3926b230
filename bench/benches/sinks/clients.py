"""Sends rows with a client that is not ours, and says as JSON on standard output what that took.

usage: clients.py CLIENT ADDRESS NAME ROWS REFERENCE. ROWS is a file of protobuf messages, the length of each as a varint of two bytes before
it. NAME is the topic, stream, subject, database, path or folder; REFERENCE is one that has the rows already, for clients that send
columns. What a client prepares is not timed: reading its input, connecting, columns in its own form.
"""
import http.client, json, os, re, subprocess, sys, threading, time

KEY = b"weir-bench-sinks"
HEADERS = {"weir-schema": "1", "weir-kind": "record", "weir-run": "1"}
# As large as a batch of the sink to the same destination.
PIPELINE_ROWS, BODY_BYTES, INSERT_ROWS = 1_000, 1 << 20, 100_000


def rows_of(path):
    data, rows, at = open(path, "rb").read(), [], 0
    while at < len(data):
        size = data[at] & 0x7F | data[at + 1] << 7
        rows.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return rows


def processor_seconds():
    """Of this process, and of those that it has run and waited for."""
    return sum(os.times()[:4])


def timed(rows, send):
    before, began = processor_seconds(), time.monotonic()
    send()
    seconds = time.monotonic() - began
    return {"rows": rows, "seconds": seconds, "cpu_seconds": processor_seconds() - before}


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, **options)


def confluent_kafka(address, topic, path, _):
    from confluent_kafka import Producer

    failed = []
    producer = Producer({
        "bootstrap.servers": address, "enable.idempotence": True, "acks": "all", "compression.type": "zstd",
        "delivery.report.only.error": True, "on_delivery": lambda error, _: failed.append(error),
    })
    producer.list_topics(topic, 30)
    rows, headers = rows_of(path), list(HEADERS.items())

    def send():
        for row in rows:
            while True:
                try:
                    producer.produce(topic, row, KEY, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.05)
        assert producer.flush(60) == 0 and not failed, failed[:1]

    return timed(len(rows), send)


def remove_kafka(address, topic):
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": address})
    client.delete_topics([topic])[topic].result(30)


def kcat(address, topic, path, _):
    rows, between, file = rows_of(path), os.urandom(12).hex(), f"{path}.kcat"
    with open(file, "wb") as out:
        out.write(between.encode().join(rows))
    safe = ["-X", "enable.idempotence=true", "-X", "acks=all", "-z", "zstd"]
    headers = [word for pair in HEADERS.items() for word in ("-H", "=".join(pair))]
    send = lambda: run("kcat", "-P", "-b", address, "-t", topic, *safe, *headers, "-k", KEY.decode(), "-D", between, "-l", file)
    return timed(len(rows), send)


def bench_writer(address, topic, path, _):
    """NSQ's own: for a time, not a number of messages, which are as long as ours are on average."""
    rows = rows_of(path)
    size, before = sum(map(len, rows)) // len(rows), processor_seconds()
    said = run("bench_writer", "-nsqd-tcp-address", address, "-topic", topic, "-size", size, "-runfor", "4s").stderr.decode()
    seconds, rate = re.search(r"duration: ([\d.]+)s .* ([\d.]+)ops/s", said).groups()
    sent = round(float(rate) * float(seconds))
    return {"rows": sent, "seconds": float(seconds), "cpu_seconds": processor_seconds() - before}


def redis_py(address, stream, path, _):
    import redis

    client, rows = redis.Redis.from_url(f"redis://{address}"), rows_of(path)
    client.ping()

    def send():
        for at in range(0, len(rows), PIPELINE_ROWS):
            pipeline = client.pipeline(transaction=False)
            for row in rows[at : at + PIPELINE_ROWS]:
                pipeline.xadd(stream, {"kind": "record", "record": row})
            pipeline.execute()

    return timed(len(rows), send)


def redis_cli(address, stream, path, _):
    """Mass insertion: the commands ready-made, in a file."""
    rows, file = rows_of(path), f"{path}.redis"
    words = lambda row: (b"XADD", stream.encode(), b"*", b"kind", b"record", b"record", row)
    with open(file, "wb") as out:
        for row in rows:
            out.write(b"*7\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words(row)))
    send = lambda: run("redis-cli", "-p", address.rsplit(":")[-1], "--pipe", stdin=open(file))
    return timed(len(rows), send)


def nats_bench(address, subject, path, _):
    """NATS's own, with messages as long as ours are on average, and an id and a kind for each."""
    rows, before = rows_of(path), processor_seconds()
    size = sum(map(len, rows)) // len(rows)
    options = ["--stream", subject, "--msgs", len(rows), "--size", size, "--dedup", "-H", "weir-kind:record", "--no-progress"]
    said = run("nats", "--no-context", "-s", address, "bench", "js", "pub", "async", *options, subject)
    rate = re.search(r"([\d,]+) msgs/sec", (said.stdout + said.stderr).decode())[1]
    seconds = len(rows) / int(rate.replace(",", ""))
    return {"rows": len(rows), "seconds": seconds, "cpu_seconds": processor_seconds() - before}


def nats_py(address, subject, path, _):
    import asyncio, nats

    rows = rows_of(path)

    async def publish():
        client = await nats.connect(f"nats://{address}")
        jetstream = client.jetstream(publish_async_max_pending=4_000)
        before, began = processor_seconds(), time.monotonic()
        for number, row in enumerate(rows):
            await jetstream.publish_async(subject, row, headers={"Nats-Msg-Id": f"{subject}-{number}", "weir-kind": "record"})
        await jetstream.publish_async_completed()
        result = {"rows": len(rows), "seconds": time.monotonic() - began, "cpu_seconds": processor_seconds() - before}
        assert (await jetstream.stream_info(subject)).state.messages == len(rows)
        await client.close()
        return result

    return asyncio.run(publish())


def remove_jetstream(address, stream):
    import asyncio, nats

    async def remove():
        client = await nats.connect(f"nats://{address}")
        await client.jetstream().delete_stream(stream)
        await client.close()

    asyncio.run(remove())


def clickhouse_connect(address, database, _, reference):
    """Columns of Arrow; from columns of Python's values it inserts a quarter as fast."""
    import clickhouse_connect

    host, port = address.rsplit(":", 1)
    client = clickhouse_connect.get_client(host=host, port=int(port), compress=False)
    client.command(f"CREATE DATABASE `{database}`")
    client.command(f"CREATE TABLE `{database}`.sockets AS `{reference}`.sockets")
    table = client.query_arrow(f"SELECT * FROM `{reference}`.sockets ORDER BY sequence")

    def send():
        for at in range(0, table.num_rows, INSERT_ROWS):
            client.insert_arrow("sockets", table.slice(at, INSERT_ROWS), database)

    return timed(table.num_rows, send)


def write_parquet(folder, reference, encodings_of):
    """The columns as they lie in memory, which is what it is made for; ours come as rows."""
    import pathlib, pyarrow as pa, pyarrow.parquet as pq

    files = sorted(pathlib.Path(reference).glob("table=sockets/**/*.parquet"))
    table = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
    options = encodings_of(pq.ParquetFile(files[0]).metadata)
    os.makedirs(folder)

    def send():
        with open(f"{folder}/rows.parquet", "wb") as out:
            pq.write_table(table, out, row_group_size=65_536, compression="zstd", compression_level=1, **options)
            out.flush()
            os.fsync(out)

    return timed(table.num_rows, send)


def pyarrow(_, folder, __, reference):
    return write_parquet(folder, reference, lambda _: {})


def pyarrow_same_encodings(_, folder, __, reference):
    def encodings_of(metadata):
        group = metadata.row_group(0)
        columns = {column.path_in_schema: column.encodings for column in map(group.column, range(group.num_columns))}
        having = lambda encoding: [name for name, encodings in columns.items() if encoding in encodings]
        differences = dict.fromkeys(having("DELTA_BINARY_PACKED"), "DELTA_BINARY_PACKED")
        return {"use_dictionary": having("RLE_DICTIONARY"), "column_encoding": differences}

    return write_parquet(folder, reference, encodings_of)


def http_client(address, path_of_url, path, _):
    """Four connections, bodies ready-made."""
    bodies, body = [], bytearray()
    rows = rows_of(path)
    for row in rows:
        body += bytes((len(row) & 0x7F | 0x80, len(row) >> 7)) + row
        if len(body) >= BODY_BYTES:
            bodies.append(bytes(body))
            body.clear()
    bodies.append(bytes(body))

    def post(own):
        connection = http.client.HTTPConnection(address)
        for one in own:
            connection.request("POST", f"/{path_of_url}", one, {"Content-Type": "application/x-protobuf"})
            answer = connection.getresponse()
            assert answer.status == 204, answer.status
            answer.read()

    def send():
        threads = [threading.Thread(target=post, args=(bodies[at::4],)) for at in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]

    return timed(len(rows), send)


if __name__ == "__main__":
    client, *arguments = sys.argv[1:]
    print(json.dumps(globals()[client](*arguments)))
