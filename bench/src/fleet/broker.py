"""What the rows of a fleet take on a Kafka broker, which it starts: disk by compression and key. Says it on standard output, as JSON.

usage: broker.py KAFKA FOLDER PORT. KAFKA runs a class of Kafka's. Each `*.pb` in the folder is what one host made in one poll, one after the other by
name; next to it a `*.keys` has the connection of each row, 24 bytes. Every host has a producer of its own, and each poll is sent at once.
"""
import collections, json, pathlib, signal, subprocess, sys, tempfile, time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

kafka, folder, port = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
ADDRESS = f"127.0.0.1:{port}"
PARTITIONS = 12
KEY_BYTES, HOST_KEY_BYTES = 24, 16
place = tempfile.TemporaryDirectory()
data = pathlib.Path(place.name) / "data"


def start():
    file = pathlib.Path(place.name) / "broker.properties"
    file.write_text(f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{port + 1}
listeners=PLAINTEXT://{ADDRESS},CONTROLLER://127.0.0.1:{port + 1}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
""")
    log = open(pathlib.Path(place.name) / "log", "w")
    subprocess.run([kafka, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(file)], check=True, stdout=log, stderr=log)
    return subprocess.Popen([kafka, "kafka.Kafka", str(file)], stdout=log, stderr=log)


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def rows(batch):
    """Keys and messages of one host's poll."""
    keys, data, at = batch.with_suffix(".keys").read_bytes(), batch.read_bytes(), 0
    for number in range(len(keys) // KEY_BYTES):
        length, at = varint(data, at)
        yield keys[number * KEY_BYTES : (number + 1) * KEY_BYTES], data[at : at + length]
        at += length


def send(admin, hosts, compression, key_bytes, name):
    topic = f"weir.{compression}.{name}"
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result()
    count, seconds = 0, 0.0
    for polls in hosts.values():
        producer = Producer({"bootstrap.servers": ADDRESS, "enable.idempotence": True, "log_level": 0, "compression.type": compression, "linger.ms": 50})
        for poll in polls:
            began = time.monotonic()
            for key, message in poll:
                producer.produce(topic, message, key=key[:key_bytes])
                count += 1
            assert producer.flush(60) == 0
            seconds += time.monotonic() - began
    bytes_on_disk = sum(file.stat().st_size for file in data.glob(f"{topic}-*/*.log"))
    return {"compression": compression, "key": name, "messages": count, "bytes_per_message": bytes_on_disk / count, "messages_per_second": count / seconds}


broker = start()
try:
    admin = AdminClient({"bootstrap.servers": ADDRESS, "log_level": 0})
    deadline = time.monotonic() + 60
    while True:
        try:
            admin.list_topics(timeout=2)
            break
        except Exception:
            assert broker.poll() is None and time.monotonic() < deadline, "the broker does not answer"
    hosts = collections.defaultdict(list)
    for batch in sorted(folder.glob("*.pb")):
        hosts[batch.stem.split("-")[0]].append(list(rows(batch)))
    results = [
        send(admin, hosts, compression, key_bytes, name)
        for compression in ("none", "lz4", "zstd")
        for name, key_bytes in (("host", HOST_KEY_BYTES), ("connection", KEY_BYTES))
    ]
    print(json.dumps(results))
finally:
    broker.send_signal(signal.SIGTERM)
    broker.wait()
