"""Clients that are not ours, for what tests prepare in a server and read back from it.

usage: client.py WHAT ADDRESS NAME [ARGUMENT]. ADDRESS is HOST:PORT, or a URL where the server wants TLS or a user. What is read is one line of JSON for each message: `payload` and `key` in base64, `headers`
as pairs of name and base64, `number` and `partition` as the server gave them. `listen-*` says `ready` on standard error when
everything that is sent from then on will be heard, and ends after ARGUMENT messages.
"""
import asyncio, base64, json, os, socket, ssl, struct, sys, urllib.error, urllib.parse, urllib.request


def text64(data):
    return None if data is None else base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def show(payload, key=None, headers=(), number=0, partition=0):
    about = {"headers": [[name, text64(value)] for name, value in headers], "number": number, "partition": partition}
    sys.stdout.write(json.dumps({"payload": text64(payload), "key": text64(key), **about}) + "\n")


def ready():
    print("ready", file=sys.stderr, flush=True)


def url(scheme, address):
    return address if "://" in address else f"{scheme}://{address}"


def make_kafka(address, topic, partitions):
    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic(topic, int(partitions), 1)])[topic].result(30)


def read_kafka(address, topic):
    from topic import messages

    for message in messages(address, topic):
        show(message.value(), message.key(), message.headers() or (), message.offset(), message.partition())


def kafka_login(address, mechanism):
    user, _, broker = address.rpartition("@")
    if not user:
        return {"bootstrap.servers": broker}
    name, _, password = user.partition(":")
    login = {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": os.environ["SSL_CERT_FILE"]}
    return {"bootstrap.servers": broker, **login, **tls}


def send_kafka(address, topic, payload, mechanism="PLAIN"):
    from confluent_kafka import Producer

    producer = Producer({**kafka_login(address, mechanism), "message.timeout.ms": 20_000})
    undelivered = []
    told = lambda error, message: error and undelivered.append(error)
    producer.produce(topic, payload.encode(), key=b"key", headers={"name": b"value"}, on_delivery=told)
    assert producer.flush(60) == 0 and not undelivered, undelivered


def nsq_http(address, path, body=None):
    host, port = address.rpartition("://")[2].split(":")
    return urllib.request.urlopen(f"http://{host}:{int(port) + 1}{path}", body, timeout=30).read()


def send_nsq(address, topic, payload):
    nsq_http(address, f"/pub?topic={topic}", payload.encode())


def nsq_left(address, topic):
    topics = json.loads(nsq_http(address, f"/stats?format=json&topic={topic}"))["topics"]
    counts = ("depth", "in_flight_count", "deferred_count")
    return sum(part.get(count, 0) for one in topics for part in (one, *one["channels"]) for count in counts)


def nsq_connection(address):
    scheme, _, place = address.rpartition("://")
    host, port = place.split(":")
    connection = socket.create_connection((host, int(port)), 30)
    connection.sendall(b"  V2")
    if scheme != "nsqs":
        return connection
    about = b'{"feature_negotiation":true,"tls_v1":true}'
    connection.sendall(b"IDENTIFY\n" + struct.pack(">i", len(about)) + about)
    answer = connection.recv(struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)
    assert b'"tls_v1":true' in answer, answer
    return ssl.create_default_context().wrap_socket(connection, server_hostname=host)


def read_nsq(address, topic):
    connection = nsq_connection(address)
    connection.sendall(f"SUB {topic} readback\nRDY 2500\n".encode())
    connection.settimeout(0.1)
    buffer = b""
    while True:
        try:
            data = connection.recv(1 << 20)
        except TimeoutError:
            if nsq_left(address, topic) == 0:
                return
            continue
        assert data, "nsqd closed the connection"
        buffer, answers = buffer + data, []
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := struct.unpack(">i", buffer[:4])[0]):
            kind, body, buffer = struct.unpack(">i", buffer[4:8])[0], buffer[8 : 4 + size], buffer[4 + size :]
            if kind == 2:
                show(body[26:])
                answers.append(b"FIN " + body[10:26] + b"\n")
            elif body == b"_heartbeat_":
                answers.append(b"NOP\n")
            else:
                assert kind == 0, body
        connection.sendall(b"".join(answers))


async def with_nats(address, use):
    import nats

    client = await nats.connect(url("nats", address), allow_reconnect=False)
    try:
        await use(client)
    finally:
        await client.close()


def show_nats(message, number=0):
    show(message.data, message.subject, (message.headers or {}).items(), number)


def make_jetstream(address, stream, subjects):
    asyncio.run(with_nats(address, lambda client: client.jetstream().add_stream(name=stream, subjects=subjects.split(","))))


def read_jetstream(address, stream):
    async def use(client):
        jetstream = client.jetstream()
        if (await jetstream.stream_info(stream)).state.messages == 0:
            return
        subscription = await jetstream.subscribe(">", stream=stream, ordered_consumer=True)
        pending = 1
        while pending:
            message = await subscription.next_msg(30)
            pending = message.metadata.num_pending
            show_nats(message, message.metadata.sequence.stream)

    asyncio.run(with_nats(address, use))


def send_nats(address, subject, payload):
    async def use(client):
        await client.publish(subject, payload.encode(), headers={"name": "value"})
        await client.flush()

    asyncio.run(with_nats(address, use))


def listen_nats(address, subject, count):
    async def use(client):
        subscription = await client.subscribe(subject)
        await client.flush()
        ready()
        for _ in range(int(count)):
            show_nats(await subscription.next_msg(60))

    asyncio.run(with_nats(address, use))


def redis_client(address):
    import redis

    return redis.Redis.from_url(url("redis", address), socket_timeout=60)


def read_redis(address, stream):
    client, after = redis_client(address), "-"
    while entries := client.xrange(stream, after, count=10_000):
        for number, fields in entries:
            show(b"", number, [(name.decode(), value) for name, value in fields.items()])
        after = b"(" + entries[-1][0]


def send_redis(address, stream, payload):
    redis_client(address).xadd(stream, {"name": payload})


def publish_redis(address, channel, payload):
    redis_client(address).publish(channel, payload)


def listen_redis(address, channel, count):
    subscription = redis_client(address).pubsub()
    subscription.subscribe(channel)
    assert subscription.get_message(timeout=60)["type"] == "subscribe"
    ready()
    for _ in range(int(count)):
        message = subscription.get_message(timeout=60)
        show(message["data"], message["channel"])


def s3_client(address):
    import boto3

    keys = {"aws_access_key_id": "weir", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=url("http", address), **keys)


def make_s3(address, bucket):
    s3_client(address).create_bucket(Bucket=bucket)


def send_s3(address, bucket, payload):
    s3_client(address).put_object(Bucket=bucket, Key="key", Body=payload.encode(), Metadata={"name": "value"})


def read_s3(address, bucket):
    client = s3_client(address)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", []):
            thing = client.get_object(Bucket=bucket, Key=entry["Key"])
            show(thing["Body"].read(), entry["Key"], thing["Metadata"].items())


def uploads_s3(address, bucket):
    for upload in s3_client(address).list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        print(upload["Key"])


def query_clickhouse(address, query, _=None):
    settings = "default_format=JSONEachRow&output_format_json_quote_64bit_integers=0"
    parts = urllib.parse.urlsplit(url("http", address))
    login = {"X-ClickHouse-User": parts.username or "default", "X-ClickHouse-Key": parts.password or ""}
    target = f"{parts.scheme}://{parts.hostname}:{parts.port}/?{settings}"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(target, query.encode(), login), timeout=60)
    except urllib.error.HTTPError as error:
        sys.exit(error.read().decode())
    sys.stdout.buffer.write(answer.read())


what, *arguments = sys.argv[1:]
globals()[what.replace("-", "_")](*arguments)
