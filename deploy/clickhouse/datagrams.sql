-- Generated from the table in crates/record; `make generated` writes it.
--
-- A table of datagrams that listeners received, with what they say as syslog. It is like the tables of sockets.sql, which explains how
-- columns are kept, and needs none of them.
--
--   clickhouse-client --multiquery < datagrams.sql
--
-- Rows can be inserted directly, with weir_store.proto in the server's format_schema_path; lines of JSON go into `datagrams_json`, which
-- keeps nothing and hands each row on:
--
--   INSERT INTO datagrams SETTINGS format_schema = 'weir_store.proto:DatagramRecord' FORMAT Protobuf
--   INSERT INTO datagrams_json FORMAT JSONEachRow
--
-- `payload` is what was received, `message` the text of syslog without what stands before it.

-- Datagrams, one row each.
CREATE TABLE IF NOT EXISTS datagrams
(
    -- Which row this is, and of which host.
    `record_kind` UInt8 COMMENT 'What the row is about: `datagram`.' CODEC(ZSTD(1)),
    `record_kind_word` String ALIAS transform(record_kind, [0, 1, 2, 3, 4, 6, 7, 8], ['unspecified', 'poll', 'close', 'totals', 'datagram', 'flow', 'counters', 'flow_totals'], toString(record_kind)),
    `time_unix_ns` UInt64 COMMENT 'When the kernel received it, or else when it was read; since 1970, UTC. [ns]' CODEC(DoubleDelta, ZSTD(1)),
    `time` DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(toInt64(time_unix_ns)) CODEC(DoubleDelta, ZSTD(1)),
    `sequence` Nullable(UInt64) COMMENT 'Number of this row among those of its run, from 0; a gap is a row that is missing. (`run_id`, `sequence`) names a row: a store that has it twice has a copy.' CODEC(Delta(8), ZSTD(1)),
    `host` LowCardinality(String) COMMENT 'The name of the host that received it, as on socket records.' CODEC(ZSTD(1)),
    `tags` Map(LowCardinality(String), String) COMMENT 'Names and values from the configuration.' CODEC(ZSTD(1)),
    `run_id` Nullable(UInt64) COMMENT 'Random number of this run, above 0 and below 2^63.' CODEC(DoubleDelta, ZSTD(1)),
    `host_id` LowCardinality(Nullable(String)) COMMENT 'Which host received it, as on socket records.' CODEC(ZSTD(1)),
    `schema_version` Nullable(UInt8) COMMENT 'Version of the tables, as on socket records.' CODEC(ZSTD(1)),
    -- What was received, and from whom.
    `listener` LowCardinality(String) COMMENT 'The listener\'s name in the configuration.' CODEC(ZSTD(1)),
    `source_address` IPv6 COMMENT 'The sender\'s address, as the kernel received it: nothing proves it.' CODEC(ZSTD(1)),
    `source_port` Nullable(UInt16) COMMENT 'The sender\'s port.' CODEC(ZSTD(1)),
    `payload` String COMMENT 'What the datagram held, whole and unchanged.' CODEC(ZSTD(1)),
    `payload_truncated_bytes` Nullable(UInt32) COMMENT 'Bytes at the end of the payload that were lost, because the datagram was larger than the buffer. [bytes]' CODEC(Delta(4), ZSTD(1)),
    -- What the payload says as syslog, where the listener is told to read it as that. Nothing of it is verified, and `payload` has it all.
    `syslog_format` Nullable(UInt8) COMMENT 'Which form of syslog it has; `unparsed` if none, and then the fields below are absent, but for facility and severity if it begins with a valid `<number>`.' CODEC(ZSTD(1)),
    `syslog_format_word` Nullable(String) ALIAS transform(syslog_format, [0, 1, 2], ['unparsed', 'rfc5424', 'rfc3164'], toString(syslog_format)),
    `facility` Nullable(UInt8) COMMENT 'What sort of program sent it.' CODEC(ZSTD(1)),
    `facility_word` Nullable(String) ALIAS transform(facility, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23], ['kern', 'user', 'mail', 'daemon', 'auth', 'syslog', 'lpr', 'news', 'uucp', 'cron', 'authpriv', 'ftp', 'ntp', 'security', 'console', 'solaris_cron', 'local0', 'local1', 'local2', 'local3', 'local4', 'local5', 'local6', 'local7'], toString(facility)),
    `severity` Nullable(UInt8) COMMENT 'How bad it is: 0 is worst.' CODEC(ZSTD(1)),
    `severity_word` Nullable(String) ALIAS transform(severity, [0, 1, 2, 3, 4, 5, 6, 7], ['emerg', 'alert', 'crit', 'err', 'warning', 'notice', 'info', 'debug'], toString(severity)),
    `syslog_time_unix_ns` Nullable(UInt64) COMMENT 'The sender\'s own time; since 1970, UTC. A time without a year (RFC 3164) has the one that is nearest to `time_unix_ns`; one without a zone is read in `time_zone` of the listener or the sink. [ns]' CODEC(DoubleDelta, ZSTD(1)),
    `syslog_time` Nullable(DateTime64(9, 'UTC')) MATERIALIZED fromUnixTimestamp64Nano(toInt64(syslog_time_unix_ns)) CODEC(DoubleDelta, ZSTD(1)),
    `hostname` LowCardinality(Nullable(String)) COMMENT 'The host that the message names, which need not be `source_address`.' CODEC(ZSTD(1)),
    `app_name` LowCardinality(Nullable(String)) COMMENT 'The program; the tag of RFC 3164 without the process id.' CODEC(ZSTD(1)),
    `proc_id` Nullable(String) COMMENT 'The process id, or what the sender puts in its place.' CODEC(ZSTD(1)),
    `msg_id` Nullable(String) COMMENT 'The type of message; of Cisco devices, what stands between `%` and the colon (Huawei and H3C: behind `%%` and the version).' CODEC(ZSTD(1)),
    `structured_data` Nullable(String) COMMENT 'Names and values as they were sent, with brackets and escapes.' CODEC(ZSTD(1)),
    `message` Nullable(String) COMMENT 'The text, without the parts above, byte order mark and line end.' CODEC(ZSTD(1)),
    `syslog_fault` Nullable(UInt8) COMMENT 'The first part that is not as RFC 5424 says. The parts before it are here, and `message` has the rest; a time without a zone alone is read, and so is what follows it.' CODEC(ZSTD(1)),
    `syslog_fault_word` Nullable(String) ALIAS transform(syslog_fault, [0, 1, 2, 3, 4, 5, 6, 7, 8], ['unspecified', 'time', 'time_zone', 'hostname', 'app_name', 'proc_id', 'msg_id', 'structured_data', 'message'], toString(syslog_fault)),

    -- When the row was inserted.
    `ingest_time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingest_time)
ORDER BY (listener, toStartOfInterval(time, INTERVAL 10 MINUTE), source_address, time_unix_ns)
-- To drop old rows:
-- TTL ingest_time + INTERVAL 30 DAY
;

CREATE TABLE IF NOT EXISTS datagrams_json
(
    `record_kind` String,
    `time_unix_ns` UInt64,
    `sequence` Nullable(UInt64),
    `host` String,
    `tags` Map(String, String),
    `run_id` Nullable(UInt64),
    `host_id` Nullable(String),
    `schema_version` Nullable(UInt8),
    `listener` String,
    `source_address` IPv6,
    `source_port` Nullable(UInt16),
    `payload` String,
    `payload_base64` Nullable(String),
    `payload_truncated_bytes` Nullable(UInt32),
    `syslog_format` Nullable(String),
    `facility` Nullable(String),
    `severity` Nullable(String),
    `syslog_time_unix_ns` Nullable(UInt64),
    `hostname` Nullable(String),
    `app_name` Nullable(String),
    `proc_id` Nullable(String),
    `msg_id` Nullable(String),
    `structured_data` Nullable(String),
    `structured_data_base64` Nullable(String),
    `message` Nullable(String),
    `message_base64` Nullable(String),
    `syslog_fault` Nullable(String)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS datagrams_json_to_datagrams TO datagrams AS
SELECT
    transform(`record_kind`, ['unspecified', 'poll', 'close', 'totals', 'datagram', 'flow', 'counters', 'flow_totals'], [0, 1, 2, 3, 4, 6, 7, 8], toUInt8OrZero(`record_kind`)) AS `record_kind`,
    `time_unix_ns`,
    `sequence`,
    `host`,
    `tags`,
    `run_id`,
    `host_id`,
    `schema_version`,
    `listener`,
    `source_address`,
    `source_port`,
    if(`payload_base64` IS NULL, `payload`, base64Decode(`payload_base64`)) AS `payload`,
    `payload_truncated_bytes`,
    transform(`syslog_format`, ['unparsed', 'rfc5424', 'rfc3164'], [0, 1, 2], toUInt8OrNull(`syslog_format`)) AS `syslog_format`,
    transform(`facility`, ['kern', 'user', 'mail', 'daemon', 'auth', 'syslog', 'lpr', 'news', 'uucp', 'cron', 'authpriv', 'ftp', 'ntp', 'security', 'console', 'solaris_cron', 'local0', 'local1', 'local2', 'local3', 'local4', 'local5', 'local6', 'local7'], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23], toUInt8OrNull(`facility`)) AS `facility`,
    transform(`severity`, ['emerg', 'alert', 'crit', 'err', 'warning', 'notice', 'info', 'debug'], [0, 1, 2, 3, 4, 5, 6, 7], toUInt8OrNull(`severity`)) AS `severity`,
    `syslog_time_unix_ns`,
    `hostname`,
    `app_name`,
    `proc_id`,
    `msg_id`,
    if(`structured_data_base64` IS NULL, `structured_data`, base64Decode(`structured_data_base64`)) AS `structured_data`,
    if(`message_base64` IS NULL, `message`, base64Decode(`message_base64`)) AS `message`,
    transform(`syslog_fault`, ['unspecified', 'time', 'time_zone', 'hostname', 'app_name', 'proc_id', 'msg_id', 'structured_data', 'message'], [0, 1, 2, 3, 4, 5, 6, 7, 8], toUInt8OrNull(`syslog_fault`)) AS `syslog_fault`
FROM datagrams_json AS landed WHERE landed.record_kind = 'datagram';
