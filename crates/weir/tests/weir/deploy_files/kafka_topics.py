"""Makes a topic as Kafka's own kafka-topics.sh does with the same arguments, and says what the broker has then."""
import argparse, json, sys, time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

parser = argparse.ArgumentParser()
parser.add_argument("--bootstrap-server", required=True)
parser.add_argument("--topic", required=True)
parser.add_argument("--partitions", type=int, required=True)
parser.add_argument("--replication-factor", type=int, required=True)
parser.add_argument("--config", action="append", default=[])
for flag in ("--create", "--if-not-exists"):
    parser.add_argument(flag, action="store_true", required=True)
args = parser.parse_args()

config = dict(pair.split("=", 1) for pair in args.config)
admin = AdminClient({"bootstrap.servers": args.bootstrap_server})
topic = NewTopic(args.topic, args.partitions, args.replication_factor, config=config)
admin.create_topics([topic])[args.topic].result()
resource = ConfigResource("topic", args.topic)
deadline = time.monotonic() + 60
while True:
    try:
        kept = admin.describe_configs([resource])[resource].result()
        break
    except KafkaException as error:
        # The broker learns of it after the controller.
        assert error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART and time.monotonic() < deadline, error
differs = {name: (value, kept[name].value) for name, value in config.items() if kept[name].value != value}
assert not differs, differs
json.dump({"topic": args.topic, "partitions": args.partitions, "config": config}, sys.stdout)
print()
