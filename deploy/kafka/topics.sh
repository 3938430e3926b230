#!/bin/sh
# Creates the topics that Weir's Kafka sink writes to and deploy/clickhouse/kafka.sql reads: one row per message, as protobuf.
#
#   topics.sh BROKER:9092 [REPLICAS]
#
# Runs Kafka's own kafka-topics.sh, from PATH or from KAFKA_TOPICS. docs/fleet.md has the figures behind the numbers.
set -eu

broker=${1:?usage: topics.sh BROKER:9092 [REPLICAS]}
replicas=${2:-3}
# Weir sends with acks=all, so acknowledged rows are on this many brokers. It is one less than the number of replicas, so one broker may be down.
in_sync=$((replicas > 1 ? replicas - 1 : 1))

# topic NAME PARTITIONS RETENTION_MS
topic() {
    "${KAFKA_TOPICS:-kafka-topics.sh}" --bootstrap-server "$broker" --create --if-not-exists \
        --topic "$1" --partitions "$2" --replication-factor "$replicas" \
        `# Old segments are deleted. Rows are events: there is no latest one to keep for each key.` \
        --config cleanup.policy=delete \
        --config retention.ms="$3" \
        `# Only closed segments are deleted: an hour, so that a day's retention is not two.` \
        --config segment.ms=3600000 \
        `# As Weir compressed it. Any other word makes the broker unpack and pack every batch again.` \
        --config compression.type=producer \
        --config min.insync.replicas="$in_sync" \
        `# Of a batch as it is sent. A row has a kilobyte, a datagram up to 64 KiB.` \
        --config max.message.bytes=2097152 \
        `# Never a replica that lacks what was acknowledged.` \
        --config unclean.leader.election.enable=false
}

day_ms=86400000

# The number of partitions is how many consumers can share a topic, and it cannot be reduced. 48 divides evenly among 2, 3, 4, 6, 8, 12, 16
# and 24 consumers. Retention is a day: ClickHouse may be down for that long.
topic weir.sockets 48 "$day_ms"
# Totals: one row per poll and host. Kept longer, because they say what should be there.
topic weir.polls 6 $((7 * day_ms))
topic weir.datagrams 48 "$day_ms"
# Rows of flows, counters and their totals together: a few for each flow and interface a minute.
topic weir.flows 12 "$day_ms"

# The key decides which partition a row goes to (`key` of the sink):
#   "host"        all rows of a host in one partition, in order, and a poll compressed as one batch. The default choice for a fleet.
#   "connection"  all rows of a connection in one partition. A host's poll is spread over all of them: with many partitions the batches are
#                 small and compress half as well. For consumers that keep state for each connection, and for few, large hosts.
