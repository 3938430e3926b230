"""A broker whose metadata can be scripted, for tests: the mock cluster of librdkafka, as the Python client has it.

usage: kafka_mock.py TOPIC. Prints its address, and then does what each line of standard input says: `leader BROKER EPOCH` is what its next
answer about partition 0 says, once; -1 is nobody. Prints `done` after each.
"""
import ctypes, glob, os, sys

import confluent_kafka

beside = os.path.join(os.path.dirname(os.path.dirname(confluent_kafka.__file__)), "confluent_kafka.libs", "librdkafka*")
library = ctypes.CDLL(glob.glob(beside)[0])
pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32
for name, result, arguments in (
    ("rd_kafka_conf_new", pointer, []),
    ("rd_kafka_new", pointer, [ctypes.c_int, pointer, text, ctypes.c_size_t]),
    ("rd_kafka_mock_cluster_new", pointer, [pointer, ctypes.c_int]),
    ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
    ("rd_kafka_mock_topic_create", ctypes.c_int, [pointer, text, ctypes.c_int, ctypes.c_int]),
    ("rd_kafka_mock_partition_push_leader_response", ctypes.c_int, [pointer, text, ctypes.c_int, number, number]),
):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments

topic, why = sys.argv[1].encode(), ctypes.create_string_buffer(512)
client = library.rd_kafka_new(0, library.rd_kafka_conf_new(), why, 512)
assert client, why.value
cluster = library.rd_kafka_mock_cluster_new(client, 1)
assert library.rd_kafka_mock_topic_create(cluster, topic, 1, 1) == 0
print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
for line in sys.stdin:
    _, broker, epoch = line.split()
    error = library.rd_kafka_mock_partition_push_leader_response(cluster, topic, 0, int(broker), int(epoch))
    print("done" if error == 0 else f"error {error}", flush=True)
