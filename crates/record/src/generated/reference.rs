//! `docs/records.md`.

use super::GENERATED;
use crate::{
    CounterRecord, DatagramRecord, Encoding, Field, FlowRecord, FlowTotals, Group, Kind,
    PollTotals, SocketRecord, WORD_TABLES,
};
use std::fmt::Write;

pub(crate) fn text() -> String {
    let mut out = format!("<!-- {GENERATED} -->\n\n");
    out.push_str(HEAD);
    out.push_str("\n## Encodings\n\n| name | file | one record is |\n|---|---|---|\n");
    for &encoding in Encoding::ALL {
        let _ =
            writeln!(out, "| `{encoding}` | `.{}` | {} |", encoding.extension(), about(encoding));
    }
    out.push_str(ENCODINGS);
    out.push_str("\n## Fields of a socket record\n");
    tables(SocketRecord::FIELDS, SocketRecord::GROUPS, &mut out);
    out.push_str(TOTALS);
    tables(PollTotals::FIELDS, PollTotals::GROUPS, &mut out);
    out.push_str(DATAGRAMS);
    tables(DatagramRecord::FIELDS, DatagramRecord::GROUPS, &mut out);
    forms(&mut out);
    out.push_str(FLOWS);
    tables(FlowRecord::FIELDS, FlowRecord::GROUPS, &mut out);
    out.push_str(COUNTERS);
    tables(CounterRecord::FIELDS, CounterRecord::GROUPS, &mut out);
    out.push_str(FLOW_TOTALS);
    tables(FlowTotals::FIELDS, FlowTotals::GROUPS, &mut out);
    out.push_str("\n## Words\n\nA value without a word, from a newer kernel, is written as its number.\n\n| type | words |\n|---|---|\n");
    for words in WORD_TABLES {
        let list: Vec<String> =
            words.entries.iter().map(|(value, word)| format!("{value} `{word}`")).collect();
        let _ = writeln!(out, "| {}: {} | {} |", words.name, words.meaning.trim(), list.join(", "));
    }
    out
}

/// How headers of syslog are read, from the table in the crate `wire` whose examples are its tests.
fn forms(out: &mut String) {
    out.push_str(FORMS_HEAD);
    for form in &wire::syslog::FORMS {
        // In a table a bar would end the cell.
        let cell = |text: &str| text.replace('|', "\\|");
        let _ = writeln!(out, "| `{}` | {} | {} |", form.name, cell(form.shape), cell(form.source));
    }
    out.push_str("\nExamples, with what is read from each; `…` is the text:\n\n");
    out.push_str("| message | time | host | program | type |\n|---|---|---|---|---|\n");
    for example in wire::syslog::FORMS.iter().flat_map(|form| form.examples) {
        let head = example.line.strip_suffix(example.message).unwrap_or(example.line);
        let text = if example.message.len() > 1 { example.message } else { "…" };
        let _ = writeln!(
            out,
            "| `{}{}` | {} | {} | {} | {} |",
            head.replace('|', "\\|"),
            text.replace('|', "\\|"),
            example.time,
            example.hostname,
            example.app_name,
            example.msg_id
        );
    }
}

const FORMS_HEAD: &str = "
### Forms of syslog

What stands behind the priority `<NUMBER>`, most certain first. Everywhere a byte order mark and blanks in front, blanks twice, a line end and NULs
at the end are accepted. A number, a level (`INFO`) and a word for a zone are not a host. A word between a time and `: %` is a zone behind a counter,
else a host. `UTC`, `GMT`, offsets and the words in `time_zone_abbreviations` are exact; other words for zones say
no more than none.

A time without a zone is read in the zone of the sender's network (`time_zones` of the listener), else in `time_zone` of the sink, else in that of
the listener, which is UTC unless it is set. Where clocks are put back and show an hour twice, it is the one nearer to the receive time; in the
hour that they leave out when they are put forward, it is read as without the change. A time without a year has the one that puts it nearest to the receive
time, in its zone.

| form | looks like | sent by |
|---|---|---|
";

const HEAD: &str = "\
# Records

A record is one TCP socket at one moment, a connection that ended, the totals of a poll, a datagram that a listener received, what came of a
flow of sFlow, or the counters of an interface. Every encoding has the same fields under the same names. The names are the kernel's own without the prefix (`tcpi_rtt` is `rtt_us`), with the unit last.

A field that is not there is not known: the kernel is older than the field, the socket has no such attribute (TIME_WAIT has no `tcp_info`), or
the field was not chosen. That is never the same as 0. It is never a number that stands for nothing either: where the kernel has one (`min_rtt_us` of
2^32 - 1 before the first sample, for example), the field is absent in every encoding.

Fields are chosen by name or by group, with commas between them; a minus takes away: `identity,endpoints,tcp_info,-fackets_segments`.

## Which records there are, and whether all have come

(`run_id`, `sequence`) names a record, in every store and whatever way it came: a record that is there twice is a copy. Totals say how many records the
run had made until then (`next_sequence`), so that any store can tell whether it has all of them, without asking Weir:

    count of the different sequences with run_id = R and sequence < N  =  N, with N the largest next_sequence of that run

Files and datagrams have the last totals after the last record. Records of a run that was killed may follow its last totals; they are beyond what can be proved.
A sink whose `fields` leave `run_id` or `sequence` out cannot be checked so. [deploy/clickhouse/complete.sql](../deploy/clickhouse/complete.sql) asks
ClickHouse, and names what is missing.

## Units that bite

- `rtt_us`, `rto_us` and most times are in µs, but `last_*_ms` and `total_rto_time_ms` are in ms.
- `snd_cwnd_segments` and `snd_ssthresh_segments` are in segments of `snd_mss_bytes`; `rcv_*_bytes` and `*_wnd_bytes` are in bytes.
- For a listener, `receive_queue` and `unacked_segments` are connections that wait to be accepted, and `send_queue` and `sacked_segments` the
  limit of that queue. For every other state they are bytes and segments.
- 32-bit counters of segments wrap: take differences modulo 2^32. Counters of bytes have 64 bits and do not, except those of AccECN.
- `lost_segments` and `retrans_segments` are what is in flight now. Totals are `total_retrans_segments` and `bytes_retrans`.
- `bytes_acked` counts our FIN as a byte and, on the side that connects, the SYN; `bytes_received` counts the peer's FIN; `bytes_sent` counts neither.
- The memory group counts buffers with their overhead, not payload.
- Kernels 6.18 and 6.19 have no `ecn_mode` and no `options2`: `tcp_info` is as long as that of 7.0, but its last 4 bytes hold `accecn_fail_mode` and
  `accecn_opt_seen` alone. Which it is tells the kernel's release, so that of a capture, which does not carry it, `accecn_word` has the bytes undivided.
";

const ENCODINGS: &str = "
JSON lines, JSON, MessagePack, CSV and TSV say the same. Numbers are numbers, also those above 2^53 (`time_unix_ns`, `run_id`): a reader that
keeps numbers as doubles should take protobuf JSON, where 64-bit numbers are texts. None needs more than 63 bits but counters that the kernel itself lets
grow that far. A word is its text, or its number if it has none yet. Addresses are text, IPv4 ones as `a.b.c.d` whatever socket has them, so that one peer
has one text; `family` tells whether the socket is an IPv6 one. Bytes are base64 in text, and `bin` in MessagePack. In the three protobuf forms addresses are
16 bytes, IPv4 as `::ffff:a.b.c.d`, bytes are bytes, and words are numbers in the binary one.

`proto/weir.proto` is for programs, with the words as enums. `proto/weir_store.proto` is the same on the wire with words as numbers, for stores: a newer
kernel's word must not stop an insert.

Texts may come from anybody who can start a process: names of processes, cgroups and namespaces. They are escaped as each encoding asks,
control characters included. CSV and TSV are written for programs: a text that starts with `=` stays as it is, so import such
columns as text when you open a file in a spreadsheet.

CSV quotes as in RFC 4180, with line feeds; an absent field is an empty place and an empty text is `\"\"`. TSV escapes tab, line feed, carriage return and
backslash with a backslash; an empty text looks like an absent field there. Both start with a line of names, in the order of
`weir sockets --columns`, or else of the tables below. A table has lines of one kind: socket records, without totals, or datagrams, or flows.
";

const TOTALS: &str = "
## Fields of the totals

One for each poll: rows of another kind, for a table of their own. Files, streams and datagrams have them between the records, as a record with
`record_kind` `totals` and all of these in its field `totals`. Two sums hold exactly:

- `sockets_visited = sockets_emitted + sockets_unchanged + sockets_filtered + sockets_sampled + sockets_dropped_*`
- `closes_observed = closes_emitted + closes_filtered + closes_undecided + closes_never_connected + closes_elsewhere +
  closes_sampled + closes_dropped_*`
";

const DATAGRAMS: &str = "
## Fields of a datagram

One for each datagram that a listener received, for sinks that take a listener's datagrams as records: a message `DatagramRecord`, with
[datagram.schema.json](datagram.schema.json) for its JSON. In a stream with other records `record_kind` tells them apart: `datagram`.

`payload` is always whole. Where a sink has `parse = \"syslog\"`, the fields of the group `syslog` say what it says, in one of the
[forms below](#forms-of-syslog). What has none of them is `unparsed`. A part that no form is sure of is absent. Nothing in a message is
verified: anybody can write any host and any time into it.

Payload, message and structured data are nearly always text, and need not be. In JSON lines, JSON, CSV and TSV they are text if they are UTF-8, and else base64
under a name of their own (`payload_base64`); one of the two is there. In MessagePack they are `str` or `bin`. Elsewhere they are bytes.
";

const FLOWS: &str = "
## Fields of a flow

What came of one flow since its last row, for sinks that take `flows`: a message `FlowRecord`, with [flow.schema.json](flow.schema.json) for its
JSON. In a stream with other records `record_kind` tells them apart: `flow`.

A flow that goes on has a row every `export_every`, one that ends or makes room for another has one then, and all have one when the daemon stops. No
sample is in two rows of a definition and none is in no row, so that `samples`, `bytes` and `frames` of the rows add up, exactly, to what the definition
counted. Where more flows end at once than rows may be made, those beyond are added up in one row without a key, whose `cause` is `merged`.

`bytes` and `frames` are scaled by what arrived, with their 95 % interval; `raw_bytes` and `raw_frames` are what the configured sampling rate
makes of the same samples, which is too low by what was lost on the way. With the aggregation `max` the same flow has rows for each agent that sees it, and for each direction there:
add up by `sampler`, and take the largest sum.
";

const COUNTERS: &str = "
## Fields of counters

One for each counter sample of an interface that is newer than its last (`subject` is `interface`), and one for each agent every `export_every` (`agent`): a message
`CounterRecord`, with [counters.schema.json](counters.schema.json). Counters are as the agent said them, those that it does not have are absent, and
differences take wraps into account. Where nothing can be compared, `is_discontinuity` says so, and there are no differences and no rates.
";

const FLOW_TOTALS: &str = "
## Fields of the totals of flows

One every `export_every`, and the last of all when the daemon stops: a message `FlowTotals`, with [flow_totals.schema.json](flow_totals.schema.json). Flow
and counter rows of a run are numbered together, and `next_sequence` says how many there were.
[deploy/clickhouse/complete_flows.sql](../deploy/clickhouse/complete_flows.sql) asks ClickHouse whether all are there.
";

fn about(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Protobuf => {
            "a message `SocketRecord`, `DatagramRecord`, … of `proto/weir.proto` after its length as a varint"
        }
        Encoding::Prototext => {
            "a line `record { … }`, `datagram { … }`, …; the file is one message `SocketRecords`"
        }
        Encoding::Protojson => "a line with an object, by protobuf's JSON mapping",
        Encoding::Jsonl => "a line with an object; `record.schema.json` is its schema",
        Encoding::Json => "an element of one array, like a line of `jsonl`",
        Encoding::MessagePack => "a map, one after another",
        Encoding::Csv => "a line of values with commas between them",
        Encoding::Tsv => "a line of values with tabs between them",
    }
}

fn tables(fields: &[Field], groups: &[Group], out: &mut String) {
    for group in groups {
        let _ = writeln!(out, "\n### `{}`\n\n{}\n", group.name, group.meaning);
        out.push_str(
            "| field | no. | type | unit | Linux | meaning |\n|---|---|---|---|---|---|\n",
        );
        for field in fields.iter().filter(|field| field.group == group.name) {
            let Field { name, number, unit, kernel, meaning, .. } = field;
            let _ = writeln!(
                out,
                "| `{name}` | {number} | {} | {unit} | {kernel} | {meaning} |",
                type_of(field.kind)
            );
        }
    }
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::U8 => "8 bits",
        Kind::U16 => "16 bits",
        Kind::U32 => "32 bits",
        Kind::U64 | Kind::Fixed64 => "64 bits",
        Kind::Bool => "yes/no",
        Kind::Text => "text",
        Kind::Bytes => "bytes",
        Kind::Data => "text or bytes",
        Kind::Address => "address",
        Kind::Word(words) => words.name,
        Kind::Tags => "names and values",
    }
}
