-- Records, totals and datagrams from Kafka into the tables of sockets.sql and datagrams.sql, which must be there. Needs weir_store.proto in
-- the server's format_schema_path, and Weir's sink with one row in each message, which is how it sends them (deploy/kafka has the topics).
--
--   clickhouse-client --multiquery < kafka.sql
--
-- Change `kafka_broker_list` first; a named collection (`Kafka(weir_kafka)`) keeps the brokers and the password out of the statements.
-- On several servers of one cluster run it on each: they are one consumer group, and share the partitions.
--
-- Kafka's engine keeps nothing: a view takes each block as it is read, and offsets are committed once the insert has worked. So no row is
-- lost, and after a crash between the two a block is inserted twice. complete.sql counts such a row once.
--
-- What cannot be read goes to `kafka_errors`; otherwise the consumer would stop at that message permanently.

CREATE TABLE IF NOT EXISTS sockets_kafka
ENGINE = Kafka
SETTINGS
    kafka_broker_list = 'kafka:9092',
    kafka_topic_list = 'weir.sockets',
    kafka_group_name = 'clickhouse-weir-sockets',
    kafka_format = 'ProtobufSingle',
    kafka_schema = 'weir_store.proto:SocketRecord',
    kafka_handle_error_mode = 'stream',
    -- As many as the rate needs, and at most as many as there are partitions: docs/fleet.md has the rows/s of a processor.
    kafka_num_consumers = 1,
    kafka_thread_per_consumer = 1,
    -- An insert, and so a part, every 10 s or 500,000 rows.
    kafka_flush_interval_ms = 10000,
    kafka_max_block_size = 500000,
    kafka_poll_max_batch_size = 65536
EMPTY AS SELECT * EXCEPT ingest_time FROM sockets;

CREATE TABLE IF NOT EXISTS polls_kafka
ENGINE = Kafka
SETTINGS
    kafka_broker_list = 'kafka:9092',
    kafka_topic_list = 'weir.polls',
    kafka_group_name = 'clickhouse-weir-polls',
    kafka_format = 'ProtobufSingle',
    kafka_schema = 'weir_store.proto:PollTotals',
    kafka_handle_error_mode = 'stream',
    kafka_flush_interval_ms = 10000
EMPTY AS SELECT * EXCEPT ingest_time FROM polls;

CREATE TABLE IF NOT EXISTS datagrams_kafka
ENGINE = Kafka
SETTINGS
    kafka_broker_list = 'kafka:9092',
    kafka_topic_list = 'weir.datagrams',
    kafka_group_name = 'clickhouse-weir-datagrams',
    kafka_format = 'ProtobufSingle',
    kafka_schema = 'weir_store.proto:DatagramRecord',
    kafka_handle_error_mode = 'stream',
    kafka_num_consumers = 1,
    kafka_thread_per_consumer = 1,
    kafka_flush_interval_ms = 10000,
    kafka_max_block_size = 500000,
    kafka_poll_max_batch_size = 65536
EMPTY AS SELECT * EXCEPT ingest_time FROM datagrams;

-- What could not be read: a message that is not Weir's, or of a version that changed a field's type.
CREATE TABLE IF NOT EXISTS kafka_errors
(
    `time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1)),
    `topic` LowCardinality(String) CODEC(ZSTD(1)),
    `partition` UInt64 CODEC(ZSTD(1)),
    `offset` UInt64 CODEC(ZSTD(1)),
    `error` String CODEC(ZSTD(1)),
    `message` String CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (topic, time)
TTL time + INTERVAL 7 DAY;

CREATE MATERIALIZED VIEW IF NOT EXISTS sockets_kafka_to_sockets TO sockets AS
SELECT * FROM sockets_kafka WHERE length(_error) = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS sockets_kafka_to_errors TO kafka_errors AS
SELECT _topic AS topic, _partition AS partition, _offset AS offset, _error AS error, _raw_message AS message
FROM sockets_kafka WHERE length(_error) > 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS polls_kafka_to_polls TO polls AS
SELECT * FROM polls_kafka WHERE length(_error) = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS polls_kafka_to_errors TO kafka_errors AS
SELECT _topic AS topic, _partition AS partition, _offset AS offset, _error AS error, _raw_message AS message
FROM polls_kafka WHERE length(_error) > 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS datagrams_kafka_to_datagrams TO datagrams AS
SELECT * FROM datagrams_kafka WHERE length(_error) = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS datagrams_kafka_to_errors TO kafka_errors AS
SELECT _topic AS topic, _partition AS partition, _offset AS offset, _error AS error, _raw_message AS message
FROM datagrams_kafka WHERE length(_error) > 0;
