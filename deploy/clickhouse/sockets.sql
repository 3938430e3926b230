-- Generated from the table in crates/record; UPDATE_RECORDS=1 cargo test -p record writes it.
--
-- A table of records and one of totals, which together tell whether all records are there: see complete.sql.
--
--   clickhouse-client --multiquery < sockets.sql
--
-- Rows of one kind can be inserted directly, with weir_store.proto in the server's format_schema_path:
--
--   INSERT INTO sockets SETTINGS format_schema = 'weir_store.proto:SocketRecord' FORMAT Protobuf
--   INSERT INTO polls SETTINGS format_schema = 'weir_store.proto:PollTotals' FORMAT Protobuf
--
-- Files of Weir have both kinds: files.sql makes what takes those.
--
-- NULL is not known. Words are numbers, since a newer kernel may have one that has no name here; each has its text, or the number as
-- text, in a second column `_word`. Times come as nanoseconds, and once more as DateTime64 in a column without the unit. Bytes are
-- bytes. An IPv4 address is `::ffff:a.b.c.d`. A column that sorts the table is 0 or empty where the field was not chosen.
-- The partition is the day of the insert, not that of the record, so that a host with a wrong clock does no harm to others.

-- Polls and closes of sockets, one row each.
CREATE TABLE IF NOT EXISTS sockets
(
    -- Which record this is, of which connection, from where.
    `record_kind` UInt8 COMMENT 'What the record tells: `poll` is a socket as a poll found it, `close` a connection that ended; a `totals` record has only `totals`.' CODEC(ZSTD(1)),
    `record_kind_word` String ALIAS transform(record_kind, [0, 1, 2, 3], ['unspecified', 'poll', 'close', 'totals'], toString(record_kind)),
    `time_unix_ns` UInt64 COMMENT 'When the kernel was asked for the datagram that lists the socket, or when the close event was read; since 1970, UTC. [ns]' CODEC(DoubleDelta, ZSTD(1)),
    `time` DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(toInt64(time_unix_ns)) CODEC(DoubleDelta, ZSTD(1)),
    `cookie` UInt64 COMMENT 'The kernel\'s number of the socket, unique until the next boot, across namespaces. (`boot_id`, `cookie`) names a connection permanently. A connection keeps it in TIME_WAIT. [Linux 3.3]' CODEC(Delta(8), ZSTD(1)),
    `poll` Nullable(UInt64) COMMENT 'Number of the poll that this record belongs to, from 1 at the start of the run (`run_id`).' CODEC(Delta(8), ZSTD(1)),
    `sequence` Nullable(UInt64) COMMENT 'Number of this record among those of its run, from 0; a gap is a record that is missing. (`run_id`, `sequence`) names a record: a store that has it twice has a copy.' CODEC(Delta(8), ZSTD(1)),
    `host` LowCardinality(String) COMMENT 'The host\'s name, from the configuration or the kernel. Names repeat and change; see `host_id`.' CODEC(ZSTD(1)),
    `boot_id` Nullable(UUID) COMMENT 'The kernel\'s random id of this boot (`/proc/sys/kernel/random/boot_id`), as a UUID.' CODEC(ZSTD(1)),
    `tags` Map(LowCardinality(String), String) COMMENT 'Names and values from the configuration.' CODEC(ZSTD(1)),
    `run_id` Nullable(UInt64) COMMENT 'Random number of this run of the collector, above 0 and below 2^63: another one whenever it starts or is configured anew.' CODEC(DoubleDelta, ZSTD(1)),
    `host_id` LowCardinality(Nullable(String)) COMMENT 'Which host it is, whatever its name: from the configuration, or else a hash of `/etc/machine-id` for this purpose alone, as a UUID (`systemd-id128 --uuid machine-id --app-specific=d02f7c6e84a14b6bb1a5d1c6a4a7e9f3`). Absent without either.' CODEC(ZSTD(1)),
    `kernel_release` LowCardinality(Nullable(String)) COMMENT 'Release of the kernel that the record is from (`uname -r`).' CODEC(ZSTD(1)),
    `schema_version` Nullable(UInt8) COMMENT 'Version of this table. A field that is added does not change it; a field whose meaning changes does.' CODEC(ZSTD(1)),
    -- Who talks to whom.
    `family` Nullable(UInt8) COMMENT 'The socket\'s family. An IPv6 socket may talk IPv4: its addresses are then IPv4 ones, in text like those of an IPv4 socket, in bytes as `::ffff:a.b.c.d`.' CODEC(ZSTD(1)),
    `family_word` Nullable(String) ALIAS transform(family, [0, 2, 10], ['unspecified', 'inet', 'inet6'], toString(family)),
    `src_address` Nullable(IPv6) COMMENT 'The local address; all zero for a listener on every address.' CODEC(ZSTD(1)),
    `src_port` Nullable(UInt16) COMMENT 'The local port.' CODEC(ZSTD(1)),
    `dst_address` Nullable(IPv6) COMMENT 'The peer\'s address; all zero for a listener.' CODEC(ZSTD(1)),
    `dst_port` Nullable(UInt16) COMMENT 'The peer\'s port; 0 for a listener.' CODEC(ZSTD(1)),
    `interface_index` Nullable(UInt32) COMMENT 'The interface the socket is bound to (`SO_BINDTODEVICE`); 0 for none.' CODEC(Delta(4), ZSTD(1)),
    `role` Nullable(UInt8) COMMENT 'Which end opened the connection, as far as the sequence numbers tell; absent for a listener. [Linux 4.19]' CODEC(ZSTD(1)),
    `role_word` Nullable(String) ALIAS transform(role, [0, 1, 2], ['unspecified', 'opener', 'acceptor'], toString(role)),
    -- State, queues, timer and options of the socket.
    `state` Nullable(UInt8) COMMENT 'The state of the connection. A `close` record has `close` here; see `last_state`.' CODEC(ZSTD(1)),
    `state_word` Nullable(String) ALIAS transform(state, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], ['unspecified', 'established', 'syn_sent', 'syn_recv', 'fin_wait_1', 'fin_wait_2', 'time_wait', 'close', 'close_wait', 'last_ack', 'listen', 'closing', 'new_syn_recv', 'bound_inactive'], toString(state)),
    `timer` Nullable(UInt8) COMMENT 'The timer that runs.' CODEC(ZSTD(1)),
    `timer_word` Nullable(String) ALIAS transform(timer, [0, 1, 2, 3, 4, 5], ['none', 'retransmit', 'keepalive', 'time_wait', 'zero_window_probe', 'delayed_ack'], toString(timer)),
    `timer_retransmits` Nullable(UInt8) COMMENT 'Retransmissions or probes that this timer made so far.' CODEC(ZSTD(1)),
    `timer_expires_ms` Nullable(UInt32) COMMENT 'Time until the timer fires. [ms]' CODEC(Delta(4), ZSTD(1)),
    `receive_queue` Nullable(UInt32) COMMENT 'Bytes that wait to be read by the application; for a listener, connections that wait to be accepted. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `send_queue` Nullable(UInt32) COMMENT 'Bytes sent or to be sent that the peer did not acknowledge; for a listener, the limit of its accept queue. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `uid` Nullable(UInt32) COMMENT 'Owner of the socket, as seen from the reader\'s user namespace; 0 for TIME_WAIT, which has no owner.' CODEC(Delta(4), ZSTD(1)),
    `inode` Nullable(UInt32) COMMENT 'Inode of the socket, as in `/proc/PID/fd`; 0 once no process holds it.' CODEC(Delta(4), ZSTD(1)),
    `type_of_service` Nullable(UInt8) COMMENT 'IPv4 type-of-service byte of what is sent (`IP_TOS`): DSCP and ECN bits.' CODEC(ZSTD(1)),
    `traffic_class` Nullable(UInt8) COMMENT 'IPv6 traffic class of what is sent (`IPV6_TCLASS`); IPv6 sockets only.' CODEC(ZSTD(1)),
    `shutdown` Nullable(UInt8) COMMENT 'Directions that were shut down: 1 receiving, 2 sending. [flags]' CODEC(ZSTD(1)),
    `protocol` Nullable(UInt8) COMMENT 'IP protocol, where the kernel says it: 6 is TCP. Close events have it.' CODEC(ZSTD(1)),
    `v6_only` Nullable(Bool) COMMENT 'Whether an IPv6 listener refuses IPv4 (`IPV6_V6ONLY`).' CODEC(ZSTD(1)),
    `mark` Nullable(UInt32) COMMENT 'The firewall mark (`SO_MARK`); given only to readers with CAP_NET_ADMIN. [Linux 4.9]' CODEC(Delta(4), ZSTD(1)),
    `class_id` Nullable(UInt32) COMMENT 'The net_cls class, or else the socket\'s priority. [Linux 5.0]' CODEC(Delta(4), ZSTD(1)),
    `socket_options` Nullable(UInt16) COMMENT 'Options, one bit each: 1 recverr, 2 is_icsk, 4 freebind, 8 hdrincl, 16 mc_loop, 32 transparent, 64 mc_all, 128 nodefrag, 256 bind_address_no_port, 512 recverr_rfc4884, 1024 defer_connect. [flags, Linux 5.10]' CODEC(ZSTD(1)),
    `has_md5` Nullable(Bool) COMMENT 'Whether TCP MD5 signatures (RFC 2385) are in use; given only to readers with CAP_NET_ADMIN. The keys are never read. [Linux 4.14]' CODEC(ZSTD(1)),
    `ulp` LowCardinality(Nullable(String)) COMMENT 'The upper-layer protocol on the socket: `tls`, `mptcp`, … [Linux 5.4]' CODEC(ZSTD(1)),
    `tls_version` Nullable(UInt16) COMMENT 'Kernel TLS: protocol version, 771 (0x0303) is TLS 1.2, 772 (0x0304) TLS 1.3. [Linux 5.4]' CODEC(ZSTD(1)),
    `tls_cipher` Nullable(UInt16) COMMENT 'Kernel TLS: cipher, by the numbers of `linux/tls.h` (51 AES-GCM-128, 52 AES-GCM-256, 54 ChaCha20-Poly1305, …). [Linux 5.4]' CODEC(ZSTD(1)),
    `tls_receive` Nullable(UInt8) COMMENT 'Kernel TLS: who decrypts what is received. [Linux 5.4]' CODEC(ZSTD(1)),
    `tls_receive_word` Nullable(String) ALIAS transform(tls_receive, [0, 1, 2, 3, 4], ['unspecified', 'base', 'software', 'hardware', 'hardware_record'], toString(tls_receive)),
    `tls_send` Nullable(UInt8) COMMENT 'Kernel TLS: who encrypts what is sent. [Linux 5.4]' CODEC(ZSTD(1)),
    `tls_send_word` Nullable(String) ALIAS transform(tls_send, [0, 1, 2, 3, 4], ['unspecified', 'base', 'software', 'hardware', 'hardware_record'], toString(tls_send)),
    `is_mptcp` Nullable(Bool) COMMENT 'Whether this is a subflow of a Multipath TCP connection. [Linux 5.7]' CODEC(ZSTD(1)),
    `mptcp_token_local` Nullable(UInt32) COMMENT 'Multipath TCP: our token of the connection; subflows of one connection share it. [Linux 5.7]' CODEC(Delta(4), ZSTD(1)),
    `mptcp_token_remote` Nullable(UInt32) COMMENT 'Multipath TCP: the peer\'s token of the connection. [Linux 5.7]' CODEC(Delta(4), ZSTD(1)),
    `mptcp_flags` Nullable(UInt32) COMMENT 'Multipath TCP: `MPTCP_SUBFLOW_FLAG_*` of `linux/mptcp.h`. [flags, Linux 5.7]' CODEC(Delta(4), ZSTD(1)),
    -- The kernel's `struct tcp_info`. Absent for TIME_WAIT and for handshakes on the server's side, which have none.
    `tcp_info_state` Nullable(UInt8) COMMENT 'The state once more (`tcpi_state`). [Linux 2.4]' CODEC(ZSTD(1)),
    `tcp_info_state_word` Nullable(String) ALIAS transform(tcp_info_state, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], ['unspecified', 'established', 'syn_sent', 'syn_recv', 'fin_wait_1', 'fin_wait_2', 'time_wait', 'close', 'close_wait', 'last_ack', 'listen', 'closing', 'new_syn_recv', 'bound_inactive'], toString(tcp_info_state)),
    `ca_state` Nullable(UInt8) COMMENT 'What loss recovery is doing. [Linux 2.4]' CODEC(ZSTD(1)),
    `ca_state_word` Nullable(String) ALIAS transform(ca_state, [0, 1, 2, 3, 4], ['open', 'disorder', 'cwr', 'recovery', 'loss'], toString(ca_state)),
    `retransmits` Nullable(UInt8) COMMENT 'Retransmission timeouts in a row without an answer (`tcpi_retransmits`). [Linux 2.4]' CODEC(ZSTD(1)),
    `probes` Nullable(UInt8) COMMENT 'Keepalive or zero-window probes without an answer. [Linux 2.4]' CODEC(ZSTD(1)),
    `backoff` Nullable(UInt8) COMMENT 'How often the retransmission timeout was doubled. [Linux 2.4]' CODEC(ZSTD(1)),
    `options` Nullable(UInt8) COMMENT 'What was agreed: 1 timestamps, 2 SACK, 4 window scaling, 8 ECN, 16 ECN seen, 32 data in the SYN was acknowledged, 64 microsecond timestamps (6.7), 128 accepted through Fast Open (6.16). [flags, Linux 2.4]' CODEC(ZSTD(1)),
    `snd_wscale` Nullable(UInt8) COMMENT 'Window scale that the peer asked for: shift of the windows it announces. [bits, Linux 2.6]' CODEC(ZSTD(1)),
    `rcv_wscale` Nullable(UInt8) COMMENT 'Our window scale: shift of the windows we announce. [bits, Linux 2.6]' CODEC(ZSTD(1)),
    `delivery_rate_app_limited` Nullable(Bool) COMMENT 'Whether the application sent too little for `delivery_rate_bytes_per_sec` to tell the path\'s speed. [Linux 4.9]' CODEC(ZSTD(1)),
    `fastopen_client_fail` Nullable(UInt8) COMMENT 'Why Fast Open did not work, on the side that connects. [Linux 5.5]' CODEC(ZSTD(1)),
    `fastopen_client_fail_word` Nullable(String) ALIAS transform(fastopen_client_fail, [0, 1, 2, 3], ['unspecified', 'cookie_unavailable', 'data_not_acked', 'syn_retransmitted'], toString(fastopen_client_fail)),
    `rto_us` Nullable(UInt32) COMMENT 'Retransmission timeout now. [µs, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `ato_us` Nullable(UInt32) COMMENT 'Delayed-acknowledgement timeout. [µs, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `snd_mss_bytes` Nullable(UInt32) COMMENT 'Largest segment we send, without headers. [bytes, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `rcv_mss_bytes` Nullable(UInt32) COMMENT 'Largest segment the peer seems to send, an estimate. [bytes, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `unacked_segments` Nullable(UInt32) COMMENT 'Segments sent and not acknowledged in order. For a listener: connections that wait to be accepted now. [segments, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `sacked_segments` Nullable(UInt32) COMMENT 'Segments in flight that the peer acknowledged selectively. For a listener: the limit of its accept queue. [segments, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `lost_segments` Nullable(UInt32) COMMENT 'Segments in flight that are taken for lost now; not a total. [segments, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `retrans_segments` Nullable(UInt32) COMMENT 'Retransmitted segments that are in flight now; not a total. [segments, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `fackets_segments` Nullable(UInt32) COMMENT 'Unused by the kernel since 4.15: 0. [segments, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `last_data_sent_ms` Nullable(UInt32) COMMENT 'Time since data was last sent. [ms, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `last_ack_sent_ms` Nullable(UInt32) COMMENT 'The kernel does not keep it: 0. [ms, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `last_data_recv_ms` Nullable(UInt32) COMMENT 'Time since data was last received. [ms, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `last_ack_recv_ms` Nullable(UInt32) COMMENT 'Time since an acknowledgement was last received. [ms, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `pmtu_bytes` Nullable(UInt32) COMMENT 'Path MTU, with headers. [bytes, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `rcv_ssthresh_bytes` Nullable(UInt32) COMMENT 'Limit of the receive window now. In bytes, unlike `snd_ssthresh_segments`. [bytes, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `rtt_us` Nullable(UInt32) COMMENT 'Smoothed round-trip time; 0 before the first sample. [µs, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `rttvar_us` Nullable(UInt32) COMMENT 'Mean deviation of the round-trip time. [µs, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `snd_ssthresh_segments` Nullable(UInt32) COMMENT 'Slow-start threshold; absent before the first loss. [segments, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `snd_cwnd_segments` Nullable(UInt32) COMMENT 'Congestion window, in segments of `snd_mss_bytes`. [segments, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `advmss_bytes` Nullable(UInt32) COMMENT 'Largest segment we told the peer to send. [bytes, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `reordering_segments` Nullable(UInt32) COMMENT 'Reordering that is taken as normal: losses are assumed beyond it. [segments, Linux 2.4]' CODEC(Delta(4), ZSTD(1)),
    `rcv_rtt_us` Nullable(UInt32) COMMENT 'Round-trip time as the receiving side estimates it; 0 if it received too little. [µs, Linux 2.6]' CODEC(Delta(4), ZSTD(1)),
    `rcv_space_bytes` Nullable(UInt32) COMMENT 'What the application read in one round trip, by which the receive buffer is tuned. [bytes, Linux 2.6]' CODEC(Delta(4), ZSTD(1)),
    `total_retrans_segments` Nullable(UInt32) COMMENT 'Retransmitted segments so far. Wraps at 2^32. [segments, Linux 2.6]' CODEC(Delta(4), ZSTD(1)),
    `pacing_rate_bytes_per_sec` Nullable(UInt64) COMMENT 'Rate the sender is paced at; absent if it is unlimited. [bytes/s, Linux 3.15]' CODEC(Delta(8), ZSTD(1)),
    `max_pacing_rate_bytes_per_sec` Nullable(UInt64) COMMENT 'Limit that the application set (`SO_MAX_PACING_RATE`); absent if it set none. [bytes/s, Linux 3.15]' CODEC(Delta(8), ZSTD(1)),
    `bytes_acked` Nullable(UInt64) COMMENT 'Bytes of ours that the peer acknowledged so far; our FIN counts as one, and so does the SYN of the side that connects. [bytes, Linux 4.1]' CODEC(Delta(8), ZSTD(1)),
    `bytes_received` Nullable(UInt64) COMMENT 'Bytes received in order so far; FIN counts as one. [bytes, Linux 4.1]' CODEC(Delta(8), ZSTD(1)),
    `segs_out` Nullable(UInt32) COMMENT 'Segments sent so far, acknowledgements and retransmissions too. Wraps at 2^32. [segments, Linux 4.2]' CODEC(Delta(4), ZSTD(1)),
    `segs_in` Nullable(UInt32) COMMENT 'Segments received so far, acknowledgements too. Wraps at 2^32. [segments, Linux 4.2]' CODEC(Delta(4), ZSTD(1)),
    `notsent_bytes` Nullable(UInt32) COMMENT 'Bytes in the send queue that were never sent. [bytes, Linux 4.6]' CODEC(Delta(4), ZSTD(1)),
    `min_rtt_us` Nullable(UInt32) COMMENT 'Smallest round-trip time in the kernel\'s window (`tcp_min_rtt_wlen`, 300 s); absent before the first sample. [µs, Linux 4.6]' CODEC(Delta(4), ZSTD(1)),
    `data_segs_in` Nullable(UInt32) COMMENT 'Segments with data received so far. Wraps at 2^32. [segments, Linux 4.6]' CODEC(Delta(4), ZSTD(1)),
    `data_segs_out` Nullable(UInt32) COMMENT 'Segments with data sent so far, retransmissions too. Wraps at 2^32. [segments, Linux 4.6]' CODEC(Delta(4), ZSTD(1)),
    `delivery_rate_bytes_per_sec` Nullable(UInt64) COMMENT 'Rate at which data was last delivered; see `delivery_rate_app_limited`. [bytes/s, Linux 4.9]' CODEC(Delta(8), ZSTD(1)),
    `busy_time_us` Nullable(UInt64) COMMENT 'Time with data in flight or waiting to be sent, so far. [µs, Linux 4.10]' CODEC(Delta(8), ZSTD(1)),
    `rwnd_limited_us` Nullable(UInt64) COMMENT 'Part of `busy_time_us` that the peer\'s receive window held us up. [µs, Linux 4.10]' CODEC(Delta(8), ZSTD(1)),
    `sndbuf_limited_us` Nullable(UInt64) COMMENT 'Part of `busy_time_us` that our own send buffer held us up. [µs, Linux 4.10]' CODEC(Delta(8), ZSTD(1)),
    `delivered_segments` Nullable(UInt32) COMMENT 'Segments that the peer got so far, selective acknowledgements included. Wraps at 2^32. [segments, Linux 4.18]' CODEC(Delta(4), ZSTD(1)),
    `delivered_ce_segments` Nullable(UInt32) COMMENT 'Those of `delivered_segments` that the peer reported as congestion-marked. Wraps at 2^32. [segments, Linux 4.18]' CODEC(Delta(4), ZSTD(1)),
    `bytes_sent` Nullable(UInt64) COMMENT 'Bytes of data sent so far, retransmissions included. [bytes, Linux 4.19]' CODEC(Delta(8), ZSTD(1)),
    `bytes_retrans` Nullable(UInt64) COMMENT 'Bytes of data retransmitted so far. [bytes, Linux 4.19]' CODEC(Delta(8), ZSTD(1)),
    `dsack_dups` Nullable(UInt32) COMMENT 'Duplicates that the peer reported (DSACK) so far: retransmissions that were not needed. [segments, Linux 4.19]' CODEC(Delta(4), ZSTD(1)),
    `reord_seen` Nullable(UInt32) COMMENT 'How often reordering was seen on the way to the peer. [events, Linux 4.19]' CODEC(Delta(4), ZSTD(1)),
    `rcv_ooopack` Nullable(UInt32) COMMENT 'Segments received out of order so far. [segments, Linux 5.4]' CODEC(Delta(4), ZSTD(1)),
    `snd_wnd_bytes` Nullable(UInt32) COMMENT 'Window that the peer announced last. [bytes, Linux 5.4]' CODEC(Delta(4), ZSTD(1)),
    `rcv_wnd_bytes` Nullable(UInt32) COMMENT 'Window that we announced last. [bytes, Linux 6.2]' CODEC(Delta(4), ZSTD(1)),
    `rehash` Nullable(UInt32) COMMENT 'How often the flow hash was changed to find another path (PLB, timeouts). [events, Linux 6.2]' CODEC(Delta(4), ZSTD(1)),
    `total_rto` Nullable(UInt16) COMMENT 'Retransmission timeouts so far. Wraps at 2^16. [events, Linux 6.7]' CODEC(ZSTD(1)),
    `total_rto_recoveries` Nullable(UInt16) COMMENT 'Recoveries from retransmission timeouts so far, one that goes on included. Wraps at 2^16. [events, Linux 6.7]' CODEC(ZSTD(1)),
    `total_rto_time_ms` Nullable(UInt32) COMMENT 'Time spent in recoveries from timeouts so far, one that goes on included. In ms, unlike `rto_us`. [ms, Linux 6.7]' CODEC(Delta(4), ZSTD(1)),
    `received_ce_segments` Nullable(UInt32) COMMENT 'Congestion-marked segments received so far. [segments, Linux 6.18]' CODEC(Delta(4), ZSTD(1)),
    `delivered_e1_bytes` Nullable(UInt32) COMMENT 'AccECN: bytes of ours that arrived marked ECT(1), by the peer\'s count. Wraps at 2^32. [bytes, Linux 6.18]' CODEC(Delta(4), ZSTD(1)),
    `delivered_e0_bytes` Nullable(UInt32) COMMENT 'AccECN: bytes of ours that arrived marked ECT(0), by the peer\'s count. Wraps at 2^32. [bytes, Linux 6.18]' CODEC(Delta(4), ZSTD(1)),
    `delivered_ce_bytes` Nullable(UInt32) COMMENT 'AccECN: bytes of ours that arrived congestion-marked, by the peer\'s count. Wraps at 2^32. [bytes, Linux 6.18]' CODEC(Delta(4), ZSTD(1)),
    `received_e1_bytes` Nullable(UInt32) COMMENT 'AccECN: bytes received marked ECT(1). Wraps at 2^32. [bytes, Linux 6.18]' CODEC(Delta(4), ZSTD(1)),
    `received_e0_bytes` Nullable(UInt32) COMMENT 'AccECN: bytes received marked ECT(0). Wraps at 2^32. [bytes, Linux 6.18]' CODEC(Delta(4), ZSTD(1)),
    `received_ce_bytes` Nullable(UInt32) COMMENT 'AccECN: bytes received congestion-marked. Wraps at 2^32. [bytes, Linux 6.18]' CODEC(Delta(4), ZSTD(1)),
    `ecn_mode` Nullable(UInt8) COMMENT 'What was agreed about ECN. [Linux 7.0]' CODEC(ZSTD(1)),
    `ecn_mode_word` Nullable(String) ALIAS transform(ecn_mode, [0, 1, 2, 3], ['disabled', 'rfc3168', 'accecn', 'pending'], toString(ecn_mode)),
    `accecn_opt_seen` Nullable(UInt8) COMMENT 'AccECN: what was seen of the peer\'s option; absent where the kernel\'s release is not known, see `accecn_word`. [Linux 6.18]' CODEC(ZSTD(1)),
    `accecn_opt_seen_word` Nullable(String) ALIAS transform(accecn_opt_seen, [0, 1, 2, 3], ['not_seen', 'empty_seen', 'counter_seen', 'fail_seen'], toString(accecn_opt_seen)),
    `accecn_fail_mode` Nullable(UInt8) COMMENT 'AccECN: what does not get through, one bit each: 1 our ACE field, 2 the peer\'s, 4 our option, 8 the peer\'s. Absent where the kernel\'s release is not known, see `accecn_word`. [flags, Linux 6.18]' CODEC(ZSTD(1)),
    `options2` Nullable(UInt32) COMMENT 'More options, 24 bits (`tcpi_options2`). [flags, Linux 7.0]' CODEC(Delta(4), ZSTD(1)),
    -- The congestion control algorithm, and what it says of itself.
    `congestion_algorithm` LowCardinality(Nullable(String)) COMMENT 'Name of the algorithm: `cubic`, `bbr`, …' CODEC(ZSTD(1)),
    `vegas_enabled` Nullable(UInt32) COMMENT 'Vegas, YeAH: whether it is in control now (1) or has fallen back to Reno (0). Illinois, LP, NV and Westwood fill these four fields too, with 1 here.' CODEC(Delta(4), ZSTD(1)),
    `vegas_rtt_count` Nullable(UInt32) COMMENT 'Vegas: round-trip times measured in this round.' CODEC(Delta(4), ZSTD(1)),
    `vegas_rtt_us` Nullable(UInt32) COMMENT 'Vegas, YeAH: smallest round-trip time ever; absent if none. NV, Westwood: the last one. Illinois, LP: the mean of this round, 0 if none. [µs]' CODEC(Delta(4), ZSTD(1)),
    `vegas_min_rtt_us` Nullable(UInt32) COMMENT 'Vegas, YeAH: smallest round-trip time of this round; absent if none. Others: the smallest seen. [µs]' CODEC(Delta(4), ZSTD(1)),
    `dctcp_enabled` Nullable(UInt16) COMMENT 'DCTCP: whether both sides agreed on ECN (1), or it works as Reno (0). [Linux 4.1]' CODEC(ZSTD(1)),
    `dctcp_ce_state` Nullable(UInt16) COMMENT 'DCTCP: whether the last segment received was congestion-marked. [Linux 4.1]' CODEC(ZSTD(1)),
    `dctcp_alpha` Nullable(UInt32) COMMENT 'DCTCP: estimated share of marked bytes; 1024 is all. [1/1024, Linux 4.1]' CODEC(Delta(4), ZSTD(1)),
    `dctcp_ab_ecn_bytes` Nullable(UInt32) COMMENT 'DCTCP: acknowledged bytes that were marked, in this window. [bytes, Linux 4.1]' CODEC(Delta(4), ZSTD(1)),
    `dctcp_ab_tot_bytes` Nullable(UInt32) COMMENT 'DCTCP: acknowledged bytes, in this window. [bytes, Linux 4.1]' CODEC(Delta(4), ZSTD(1)),
    `bbr_bw_bytes_per_sec` Nullable(UInt64) COMMENT 'BBR: the path\'s bandwidth as estimated, the largest in its window. [bytes/s, Linux 4.9]' CODEC(Delta(8), ZSTD(1)),
    `bbr_min_rtt_us` Nullable(UInt32) COMMENT 'BBR: smallest round-trip time in its window of 10 s. [µs, Linux 4.9]' CODEC(Delta(4), ZSTD(1)),
    `bbr_pacing_gain` Nullable(UInt32) COMMENT 'BBR: pacing rate over bandwidth; 256 is 1. [1/256, Linux 4.9]' CODEC(Delta(4), ZSTD(1)),
    `bbr_cwnd_gain` Nullable(UInt32) COMMENT 'BBR: congestion window over bandwidth-delay product; 256 is 1. [1/256, Linux 4.9]' CODEC(Delta(4), ZSTD(1)),
    `bbr_tail` Nullable(String) COMMENT 'BBR: what a newer algorithm\'s block has behind these fields (BBRv2, BBRv3), raw.' CODEC(ZSTD(1)),
    -- The socket's memory, as the kernel accounts it: buffers with their overhead, not payload.
    `rmem_alloc_bytes` Nullable(UInt32) COMMENT 'Held by data received and not read. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `rcvbuf_bytes` Nullable(UInt32) COMMENT 'Limit of the receive buffer (`SO_RCVBUF`, as doubled by the kernel). [bytes]' CODEC(Delta(4), ZSTD(1)),
    `wmem_alloc_bytes` Nullable(UInt32) COMMENT 'Held by segments given to the device and not freed. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `sndbuf_bytes` Nullable(UInt32) COMMENT 'Limit of the send buffer (`SO_SNDBUF`, as doubled by the kernel). [bytes]' CODEC(Delta(4), ZSTD(1)),
    `fwd_alloc_bytes` Nullable(UInt32) COMMENT 'Set aside for the socket and not in use. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `wmem_queued_bytes` Nullable(UInt32) COMMENT 'Held by data sent and not acknowledged, and by data to be sent. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `optmem_bytes` Nullable(UInt32) COMMENT 'Held by options and filters. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `backlog_bytes` Nullable(UInt32) COMMENT 'Held by segments that arrived while the socket was in use. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `drops` Nullable(UInt32) COMMENT 'Segments that this socket dropped so far. Wraps at 2^32. [segments, Linux 4.7]' CODEC(Delta(4), ZSTD(1)),
    `meminfo_rmem_bytes` Nullable(UInt32) COMMENT 'The same as `rmem_alloc_bytes`, from the older attribute (`INET_DIAG_MEMINFO`). [bytes]' CODEC(Delta(4), ZSTD(1)),
    `meminfo_wmem_bytes` Nullable(UInt32) COMMENT 'The same as `wmem_queued_bytes`, from the older attribute. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `meminfo_fmem_bytes` Nullable(UInt32) COMMENT 'The same as `fwd_alloc_bytes`, from the older attribute. [bytes]' CODEC(Delta(4), ZSTD(1)),
    `meminfo_tmem_bytes` Nullable(UInt32) COMMENT 'The same as `wmem_alloc_bytes`, from the older attribute. [bytes]' CODEC(Delta(4), ZSTD(1)),
    -- Whose socket it is.
    `netns_inode` Nullable(UInt64) COMMENT 'Inode of the network namespace, as in `/proc/PID/ns/net`: its identity on this host.' CODEC(Delta(8), ZSTD(1)),
    `netns_name` LowCardinality(Nullable(String)) COMMENT 'Name or path of the network namespace, where it has one.' CODEC(ZSTD(1)),
    `netns_id` Nullable(UInt32) COMMENT 'Id of the namespace as seen from ours (`ip netns list-id`), where one is assigned.' CODEC(Delta(4), ZSTD(1)),
    `cgroup_id` Nullable(UInt64) COMMENT 'Id of the cgroup (v2) of the process that made the socket. [Linux 5.8]' CODEC(Delta(8), ZSTD(1)),
    `cgroup_path` Nullable(String) COMMENT 'Path of that cgroup below the cgroup file system.' CODEC(ZSTD(1)),
    `pod_uid` Nullable(String) COMMENT 'UID of the Kubernetes pod, from the path.' CODEC(ZSTD(1)),
    `container_id` Nullable(String) COMMENT 'Id of the container, from the path.' CODEC(ZSTD(1)),
    `systemd_unit` LowCardinality(Nullable(String)) COMMENT 'The systemd unit, from the path.' CODEC(ZSTD(1)),
    `process_id` Nullable(UInt32) COMMENT 'A process that holds the socket, where that was asked for (`processes = true`, `--processes`); the lowest if there are several. Not on closing records.' CODEC(Delta(4), ZSTD(1)),
    `process_name` LowCardinality(Nullable(String)) COMMENT 'That process\'s name, up to 15 bytes; chosen by the process, so do not trust it.' CODEC(ZSTD(1)),
    `netns_cookie` Nullable(UInt64) COMMENT 'The kernel\'s number of the network namespace, which no other has until the next boot. An inode is given again soon after its namespace has gone. [Linux 5.14]' CODEC(Delta(8), ZSTD(1)),
    -- How a connection ended. Records of kind `close` only, but for `first_seen_unix_ns`.
    `close_reason` Nullable(UInt8) COMMENT 'How it ended, as far as the last poll and the close event tell.' CODEC(ZSTD(1)),
    `close_reason_word` Nullable(String) ALIAS transform(close_reason, [0, 1, 2, 3, 4, 5, 6], ['unknown', 'our_close', 'peer_close', 'our_reset', 'peer_reset', 'refused', 'timed_out'], toString(close_reason)),
    `last_state` Nullable(UInt8) COMMENT 'The state in which the last poll saw it; absent if no poll did.' CODEC(ZSTD(1)),
    `last_state_word` Nullable(String) ALIAS transform(last_state, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], ['unspecified', 'established', 'syn_sent', 'syn_recv', 'fin_wait_1', 'fin_wait_2', 'time_wait', 'close', 'close_wait', 'last_ack', 'listen', 'closing', 'new_syn_recv', 'bound_inactive'], toString(last_state)),
    `first_seen_unix_ns` Nullable(UInt64) COMMENT 'When a poll first saw it, also on records of kind `poll`. Absent if none did: it was shorter than the time between two polls. [ns]' CODEC(DoubleDelta, ZSTD(1)),
    `first_seen` Nullable(DateTime64(9, 'UTC')) MATERIALIZED fromUnixTimestamp64Nano(toInt64(first_seen_unix_ns)) CODEC(DoubleDelta, ZSTD(1)),
    `last_seen_unix_ns` Nullable(UInt64) COMMENT 'When a poll last saw it. [ns]' CODEC(DoubleDelta, ZSTD(1)),
    `last_seen` Nullable(DateTime64(9, 'UTC')) MATERIALIZED fromUnixTimestamp64Nano(toInt64(last_seen_unix_ns)) CODEC(DoubleDelta, ZSTD(1)),
    `seen_ns` Nullable(UInt64) COMMENT 'From the first poll that saw it to its end: at least this long it lived. [ns]' CODEC(Delta(8), ZSTD(1)),
    `polls_seen` Nullable(UInt32) COMMENT 'Polls that saw it; 0 is a connection that only its close event tells of. [polls]' CODEC(Delta(4), ZSTD(1)),
    `is_from_last_poll` Nullable(Bool) COMMENT 'Whether the kernel had cleared counters or addresses before the close event (an abort does), so that they are the last poll\'s.' CODEC(ZSTD(1)),
    -- What was added since the last record of the same connection that has counters. Absent on the first, whose counters are what came before; so the first record's counter and all differences since add up to the last record's counter. Absent too where counters are not known: on records without `tcp_info`, and of an abort, which clears them.
    `since_ns` Nullable(UInt64) COMMENT 'Time since that record, by a clock that is never set. [ns]' CODEC(Delta(8), ZSTD(1)),
    `bytes_sent_delta` Nullable(UInt64) COMMENT 'Added to `bytes_sent`. [bytes, Linux 4.19]' CODEC(Delta(8), ZSTD(1)),
    `bytes_acked_delta` Nullable(UInt64) COMMENT 'Added to `bytes_acked`. [bytes, Linux 4.1]' CODEC(Delta(8), ZSTD(1)),
    `bytes_received_delta` Nullable(UInt64) COMMENT 'Added to `bytes_received`. [bytes, Linux 4.1]' CODEC(Delta(8), ZSTD(1)),
    `bytes_retrans_delta` Nullable(UInt64) COMMENT 'Added to `bytes_retrans`. [bytes, Linux 4.19]' CODEC(Delta(8), ZSTD(1)),
    `segs_out_delta` Nullable(UInt32) COMMENT 'Added to `segs_out`, modulo 2^32. [segments, Linux 4.2]' CODEC(Delta(4), ZSTD(1)),
    `segs_in_delta` Nullable(UInt32) COMMENT 'Added to `segs_in`, modulo 2^32. [segments, Linux 4.2]' CODEC(Delta(4), ZSTD(1)),
    `total_retrans_segments_delta` Nullable(UInt32) COMMENT 'Added to `total_retrans_segments`, modulo 2^32. [segments, Linux 2.6]' CODEC(Delta(4), ZSTD(1)),
    `busy_time_us_delta` Nullable(UInt64) COMMENT 'Added to `busy_time_us`. [µs, Linux 4.10]' CODEC(Delta(8), ZSTD(1)),
    `rwnd_limited_us_delta` Nullable(UInt64) COMMENT 'Added to `rwnd_limited_us`. [µs, Linux 4.10]' CODEC(Delta(8), ZSTD(1)),
    `sndbuf_limited_us_delta` Nullable(UInt64) COMMENT 'Added to `sndbuf_limited_us`. [µs, Linux 4.10]' CODEC(Delta(8), ZSTD(1)),
    -- What this version of Weir has no name for, kept as the kernel gave it.
    `tcp_info_len_bytes` Nullable(UInt16) COMMENT 'Length of `tcp_info` as this kernel gave it; fields beyond are absent. [bytes]' CODEC(ZSTD(1)),
    `tcp_info_tail` Nullable(String) COMMENT '`tcp_info` beyond the 280 bytes that are known.' CODEC(ZSTD(1)),
    `accecn_word` Nullable(UInt32) COMMENT 'The last 4 of the 280 bytes of `tcp_info` as a number of the host\'s byte order, where it is not known which kernel wrote them (a capture, a release that should not have them): 6.18 and 6.19 hold other fields there than 7.0 and later. [Linux 6.18]' CODEC(Delta(4), ZSTD(1)),
    `unknown_attributes` Nullable(String) COMMENT 'Unknown netlink attributes one after another: u16 length with this header, u16 type, payload, padding to 4 bytes; host byte order.' CODEC(ZSTD(1)),

    -- When the row was inserted.
    `ingest_time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingest_time)
ORDER BY (toStartOfInterval(time, INTERVAL 10 MINUTE), host, cookie, time_unix_ns)
-- To drop old rows:
-- TTL ingest_time + INTERVAL 30 DAY
;

-- Totals of polls, one row each.
CREATE TABLE IF NOT EXISTS polls
(
    -- Which poll.
    `time_unix_ns` UInt64 COMMENT 'When the poll began; since 1970, UTC. [ns]' CODEC(DoubleDelta, ZSTD(1)),
    `time` DateTime64(9, 'UTC') MATERIALIZED fromUnixTimestamp64Nano(toInt64(time_unix_ns)) CODEC(DoubleDelta, ZSTD(1)),
    `poll` Nullable(UInt64) COMMENT 'Number of the poll, from 1 at the start of the run.' CODEC(Delta(8), ZSTD(1)),
    `host` LowCardinality(String) COMMENT 'The host\'s name.' CODEC(ZSTD(1)),
    `boot_id` Nullable(UUID) COMMENT 'The kernel\'s random id of this boot, as a UUID.' CODEC(ZSTD(1)),
    `tags` Map(LowCardinality(String), String) COMMENT 'Names and values from the configuration.' CODEC(ZSTD(1)),
    `is_keyframe` Nullable(Bool) COMMENT 'Whether unchanged sockets were emitted too.' CODEC(ZSTD(1)),
    `run_id` Nullable(UInt64) COMMENT 'Random number of this run of the collector, as on its records.' CODEC(DoubleDelta, ZSTD(1)),
    `next_sequence` Nullable(UInt64) COMMENT 'Records that the run had made when these totals were: the `sequence` of the next one. A store has all of them if it has as many different records of this `run_id` with a smaller `sequence`.' CODEC(Delta(8), ZSTD(1)),
    `host_id` LowCardinality(Nullable(String)) COMMENT 'Which host it is, as on the records.' CODEC(ZSTD(1)),
    `kernel_release` LowCardinality(Nullable(String)) COMMENT 'Release of the kernel (`uname -r`).' CODEC(ZSTD(1)),
    `weir_version` LowCardinality(Nullable(String)) COMMENT 'Version of Weir.' CODEC(ZSTD(1)),
    `interval_ms` Nullable(UInt64) COMMENT 'From the beginning of one poll to that of the next, as configured. [ms]' CODEC(Delta(8), ZSTD(1)),
    `schema_version` Nullable(UInt8) COMMENT 'Version of the table, as on the records.' CODEC(ZSTD(1)),
    -- Where in a stream of datagrams this is; absent elsewhere.
    `stream_id` Nullable(UInt64) COMMENT 'Random number of the stream.' CODEC(DoubleDelta, ZSTD(1)),
    `records_sent` Nullable(UInt64) COMMENT 'Records put into the datagrams of this stream so far, this one\'s included. [records]' CODEC(Delta(8), ZSTD(1)),
    `datagrams_sent` Nullable(UInt64) COMMENT 'Datagrams of this stream before this one. [datagrams]' CODEC(Delta(8), ZSTD(1)),
    `records_too_big` Nullable(UInt64) COMMENT 'Records so far that alone were larger than a datagram may be, and were not sent. [records]' CODEC(Delta(8), ZSTD(1)),
    -- Network namespaces.
    `namespaces_visited` Nullable(UInt64) COMMENT 'Namespaces that were walked to the end. [namespaces]' CODEC(Delta(8), ZSTD(1)),
    `namespaces_failed` Nullable(UInt64) COMMENT 'Namespaces that could not be entered or walked; what was read of them before the error counts. [namespaces]' CODEC(Delta(8), ZSTD(1)),
    `namespaces_vanished` Nullable(UInt64) COMMENT 'Namespaces that ended while they were being visited. [namespaces]' CODEC(Delta(8), ZSTD(1)),
    -- What became of every socket that the kernel listed.
    `sockets_visited` Nullable(UInt64) COMMENT 'Sockets that the kernel listed. [sockets]' CODEC(Delta(8), ZSTD(1)),
    `sockets_emitted` Nullable(UInt64) COMMENT 'Records made. [sockets]' CODEC(Delta(8), ZSTD(1)),
    `sockets_unchanged` Nullable(UInt64) COMMENT 'Left out because nothing changed since the last record of them. [sockets]' CODEC(Delta(8), ZSTD(1)),
    `sockets_filtered` Nullable(UInt64) COMMENT 'Left out by the filter, where the kernel had not left them out. [sockets]' CODEC(Delta(8), ZSTD(1)),
    `sockets_sampled` Nullable(UInt64) COMMENT 'Left out by sampling. [sockets]' CODEC(Delta(8), ZSTD(1)),
    `sockets_dropped_decode_failed` Nullable(UInt64) COMMENT 'Lost: the kernel\'s message could not be decoded. [sockets]' CODEC(Delta(8), ZSTD(1)),
    `sockets_dropped_duplicate` Nullable(UInt64) COMMENT 'Listed a second time in the same walk, and left out. [sockets]' CODEC(Delta(8), ZSTD(1)),
    `sockets_dropped_other` Nullable(UInt64) COMMENT 'Lost for any other reason; the ledger says which. [sockets]' CODEC(Delta(8), ZSTD(1)),
    -- What became of every close that the kernel told of, since the last totals.
    `closes_observed` Nullable(UInt64) COMMENT 'Closes that the kernel told of, those that its buffer had no room for included. [closes]' CODEC(Delta(8), ZSTD(1)),
    `closes_emitted` Nullable(UInt64) COMMENT 'Closing records made. [closes]' CODEC(Delta(8), ZSTD(1)),
    `closes_filtered` Nullable(UInt64) COMMENT 'Left out: by the filter, or because the socket was never connected (a listener, for example). [closes]' CODEC(Delta(8), ZSTD(1)),
    `closes_sampled` Nullable(UInt64) COMMENT 'Left out by sampling. [closes]' CODEC(Delta(8), ZSTD(1)),
    `closes_dropped_event_buffer` Nullable(UInt64) COMMENT 'Lost: the netlink socket\'s buffer was full. Exact. [closes]' CODEC(Delta(8), ZSTD(1)),
    `closes_dropped_decode_failed` Nullable(UInt64) COMMENT 'Lost: the kernel\'s message could not be decoded. [closes]' CODEC(Delta(8), ZSTD(1)),
    `closes_dropped_duplicate` Nullable(UInt64) COMMENT 'Told of a second time, and left out. [closes]' CODEC(Delta(8), ZSTD(1)),
    `closes_dropped_other` Nullable(UInt64) COMMENT 'Lost for any other reason; the ledger says which. [closes]' CODEC(Delta(8), ZSTD(1)),
    `closes_unobserved` Nullable(UInt64) COMMENT 'Connections that vanished from the polls without a close event. Beside the sum above. [closes]' CODEC(Delta(8), ZSTD(1)),
    -- The table that joins polls and closes.
    `table_entries` Nullable(UInt64) COMMENT 'Connections in the table. [connections]' CODEC(Delta(8), ZSTD(1)),
    `table_evicted` Nullable(UInt64) COMMENT 'Connections pushed out by newer ones since the last totals; their closing records lack what polls saw. [connections]' CODEC(Delta(8), ZSTD(1)),
    -- What it took.
    `poll_ns` Nullable(UInt64) COMMENT 'The whole poll, by the clock. [ns]' CODEC(Delta(8), ZSTD(1)),
    `discovery_ns` Nullable(UInt64) COMMENT 'Looking for namespaces. [ns]' CODEC(Delta(8), ZSTD(1)),
    `walk_ns` Nullable(UInt64) COMMENT 'In the kernel: requests and reads. [ns]' CODEC(Delta(8), ZSTD(1)),
    `decode_ns` Nullable(UInt64) COMMENT 'Decoding, filtering, joining and handing over. [ns]' CODEC(Delta(8), ZSTD(1)),
    `cpu_ns` Nullable(UInt64) COMMENT 'Processor time of the collecting thread for the poll. [ns]' CODEC(Delta(8), ZSTD(1)),
    `walks` Nullable(UInt64) COMMENT 'Dumps asked of the kernel. [walks]' CODEC(Delta(8), ZSTD(1)),
    `bytes_read` Nullable(UInt64) COMMENT 'Bytes read from netlink. [bytes]' CODEC(Delta(8), ZSTD(1)),

    -- When the row was inserted.
    `ingest_time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingest_time)
ORDER BY (toStartOfInterval(time, INTERVAL 10 MINUTE), host, time_unix_ns)
-- TTL ingest_time + INTERVAL 30 DAY
;
