-- Rows of sFlow from Kafka into the tables of flows.sql. Run it after flows.sql and kafka.sql, which lists the requirements, and whose
-- `kafka_errors` receives what cannot be read.
--
--   clickhouse-client --multiquery < kafka_flows.sql
--
-- A sink with `from = ["flows"]` sends its three kinds of rows to one topic. Each table here reads that topic separately, and
-- its view takes the rows of its kind: a row says what it is, and no field number has two meanings. So the topic is read three times.

CREATE TABLE IF NOT EXISTS flows_kafka
ENGINE = Kafka
SETTINGS
    kafka_broker_list = 'kafka:9092',
    kafka_topic_list = 'weir.flows',
    kafka_group_name = 'clickhouse-weir-flows',
    kafka_format = 'ProtobufSingle',
    kafka_schema = 'weir_store.proto:FlowRecord',
    kafka_handle_error_mode = 'stream',
    -- See kafka.sql.
    kafka_num_consumers = 1,
    kafka_thread_per_consumer = 1,
    kafka_flush_interval_ms = 10000,
    kafka_max_block_size = 500000,
    kafka_poll_max_batch_size = 65536
EMPTY AS SELECT * EXCEPT ingest_time FROM flows;

CREATE TABLE IF NOT EXISTS counters_kafka
ENGINE = Kafka
SETTINGS
    kafka_broker_list = 'kafka:9092',
    kafka_topic_list = 'weir.flows',
    kafka_group_name = 'clickhouse-weir-counters',
    kafka_format = 'ProtobufSingle',
    kafka_schema = 'weir_store.proto:CounterRecord',
    kafka_handle_error_mode = 'stream',
    kafka_flush_interval_ms = 10000,
    kafka_max_block_size = 500000,
    kafka_poll_max_batch_size = 65536
EMPTY AS SELECT * EXCEPT ingest_time FROM counters;

CREATE TABLE IF NOT EXISTS flow_totals_kafka
ENGINE = Kafka
SETTINGS
    kafka_broker_list = 'kafka:9092',
    kafka_topic_list = 'weir.flows',
    kafka_group_name = 'clickhouse-weir-flow-totals',
    kafka_format = 'ProtobufSingle',
    kafka_schema = 'weir_store.proto:FlowTotals',
    kafka_handle_error_mode = 'stream',
    kafka_flush_interval_ms = 10000,
    kafka_max_block_size = 500000,
    kafka_poll_max_batch_size = 65536
EMPTY AS SELECT * EXCEPT ingest_time FROM flow_totals;

CREATE MATERIALIZED VIEW IF NOT EXISTS flows_kafka_to_flows TO flows AS
SELECT * FROM flows_kafka WHERE length(_error) = 0 AND record_kind = 6;

-- What is not a row for one reader is not a row for the others.
CREATE MATERIALIZED VIEW IF NOT EXISTS flows_kafka_to_errors TO kafka_errors AS
SELECT _topic AS topic, _partition AS partition, _offset AS offset, _error AS error, _raw_message AS message
FROM flows_kafka WHERE length(_error) > 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS counters_kafka_to_counters TO counters AS
SELECT * FROM counters_kafka WHERE length(_error) = 0 AND record_kind = 7;

CREATE MATERIALIZED VIEW IF NOT EXISTS flow_totals_kafka_to_flow_totals TO flow_totals AS
SELECT * FROM flow_totals_kafka WHERE length(_error) = 0 AND record_kind = 8;
