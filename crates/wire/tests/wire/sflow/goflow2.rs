//! goflow2, an independent decoder, reads what we write and what real switches sent.

use std::process::Command;

use serde_json::{Value as Json, json};
use testkit::{Process, Random, TempDir, find_tool, free_port, need_tool, sender, wait_for};
use wire::sflow::{
    Address, CounterRecord, CountersSample, DataFormat, DataSource, Datagram, DropReason,
    DroppedPacket, FlowRecord, FlowSample, Form, Interface, Kind, RawRecord, Records, Sample,
    Value, Writer,
};

use super::made;

const COMPACT: &[u8] = include_bytes!("../../../testdata/sflow-172.bin");
const EXPANDED: &[u8] = include_bytes!("../../../testdata/sflow-1500.bin");

/// goflow2's names for the fields of the structures that it knows, in the order of our tables. Without `sampled_ethernet`
/// (2), because goflow2 2.2.6 takes the padding after addresses for the next field.
const FLOW_NAMES: &[(u32, &[&str])] = &[
    (1, &["protocol", "frame-length", "stripped", "header-data"]),
    (3, &["length", "protocol", "src-ip", "dst-ip", "src-port", "dst-port", "tcp-flags", "tos"]),
    (
        4,
        &[
            "length",
            "protocol",
            "src-ip",
            "dst-ip",
            "src-port",
            "dst-port",
            "tcp-flags",
            "priority",
        ],
    ),
    (1001, &["src-vlan", "src-priority", "dst-vlan", "dst-priority"]),
    (1002, &["next-hop", "src-mask-len", "dst-mask-len"]),
    (1003, &["next-hop", "as", "src-as", "src-peer-as", "as-path", "communities", "local-pref"]),
    (1036, &["queue"]),
    (1037, &["number", "name", "direction"]),
    (1038, &["symbol"]),
];
const COUNTER_NAMES: &[(u32, &[&str])] = &[
    (
        1,
        &[
            "if-index",
            "if-type",
            "if-speed",
            "if-direction",
            "if-status",
            "if-in-octets",
            "if-in-ucast-pkts",
            "if-in-multicast-pkts",
            "if-in-broadcast-pkts",
            "if-in-discards",
            "if-in-errors",
            "if-in-unknown-protos",
            "if-out-octets",
            "if-out-ucast-pkts",
            "if-out-multicast-pkts",
            "if-out-broadcast-pkts",
            "if-out-discards",
            "if-out-errors",
            "if-promiscuous-mode",
        ],
    ),
    (
        2,
        &[
            "dot3-stats-aligment-errors",
            "dot3-stats-fcse-errors",
            "dot3-stats-single-collision-frames",
            "dot3-stats-multiple-collision-frames",
            "dot3-stats-seq-test-errors",
            "dot3-stats-deferred-transmissions",
            "dot3-stats-late-collisions",
            "dot3-stats-excessive-collisions",
            "dot3-stats-internal-mac-transmit-errors",
            "dot3-stats-carrier-sense-errors",
            "dot3-stats-frame-too-longs",
            "dot3-stats-internal-mac-receive-errors",
            "dot3-stats-symbol-errors",
        ],
    ),
];

/// goflow2's output for one datagram, of this many lines; `produce` is `raw` or `sample`.
fn goflow2(produce: &str, datagram: &[u8], lines: usize) -> Vec<Json> {
    let folder = TempDir::new();
    let out = folder.file("out");
    let port = free_port();
    let mut command = Command::new(find_tool("goflow2").unwrap());
    command.args(["-produce", produce, "-addr", "", "-transport.file"]).arg(&out);
    command.args(["-listen", &format!("sflow://127.0.0.1:{port}")]);
    let mut process = Process::start(command);

    // A datagram to a port without a listener makes the next one fail.
    let socket = sender(([127, 0, 0, 1], port).into());
    wait_for("goflow2 to listen", || {
        assert!(process.is_running(), "goflow2 has ended: {}", process.said());
        (0..2).all(|_| socket.send(b"?").is_ok()).then_some(())
    });
    socket.send(datagram).unwrap();

    let said = wait_for(
        || format!("{lines} lines of goflow2"),
        || {
            let text = std::fs::read_to_string(&out).unwrap_or_default();
            let whole = text.lines().map_while(|line| serde_json::from_str(line).ok());
            let said: Vec<Json> = whole.collect();
            (said.len() >= lines).then_some(said)
        },
    );
    process.signal("TERM");
    process.finish();
    said
}

/// A field in goflow2's representation.
fn field(value: Value<'_>) -> Json {
    match value {
        Value::U32(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::Counter32(value) => json!(value.0),
        Value::Counter64(value) => json!(value.0),
        Value::Address(Address::Unknown) => json!(""),
        Value::Address(value) => json!(value.to_string()),
        Value::Text(value) => json!(value.to_string()),
        // Including the padding, which goflow2 takes for part of the header.
        Value::Bytes(value) => {
            let mut padded = value.to_vec();
            padded.resize(value.len().next_multiple_of(4), 0);
            json!(base64(&padded))
        }
        Value::Numbers(value) => json!(value.iter().collect::<Vec<_>>()),
        Value::AsPath(value) => json!(value.systems().collect::<Vec<_>>()),
        other => panic!("goflow2 has no {other:?}"),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let word = group.iter().fold(0, |word, byte| word << 8 | usize::from(*byte));
        let word = word << (8 * (3 - group.len()));
        let digit = |at: usize| char::from(DIGITS[word >> (18 - 6 * at) & 63]);
        (0..4).map(|at| if at <= group.len() { digit(at) } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Compares one record with goflow2's output. A structure without names is one that goflow2 does not know.
fn check_record(
    names: &[(u32, &[&str])],
    format: DataFormat,
    each: impl FnOnce(&mut dyn FnMut(&'static str, Value<'_>)),
    theirs: &Json,
) {
    assert_eq!(theirs["header"]["data-format"], json!(format.0));
    let Some((_, names)) = names.iter().find(|(number, _)| *number == format.0) else { return };
    let mut fields = names.iter();
    each(&mut |ours, value| {
        let name = fields.next().expect("a name for each field");
        assert_eq!(theirs["data"][name], field(value), "{format} {ours}");
    });
    assert_eq!(fields.next(), None);
}

/// Compares everything we read from a datagram with goflow2's output; returns the number of records.
fn check_raw(bytes: &[u8]) -> usize {
    let said = &goflow2("raw", bytes, 1)[0]["message"];
    let datagram = Datagram::parse(bytes).unwrap();
    assert_eq!(said["agent-ip"], json!(datagram.agent.to_string()));
    assert_eq!(said["sub-agent-id"], json!(datagram.sub_agent));
    assert_eq!(said["sequence-number"], json!(datagram.sequence));
    assert_eq!(said["uptime"], json!(datagram.uptime_ms));

    let samples: Vec<_> = datagram.samples().map(Result::unwrap).collect();
    assert_eq!(said["samples"].as_array().unwrap().len(), samples.len());
    samples.iter().enumerate().map(|(at, sample)| check_sample(sample, &said["samples"][at])).sum()
}

fn check_sample(sample: &Sample<'_>, theirs: &Json) -> usize {
    let head = |sequence: u32, source: DataSource| {
        let header = &theirs["header"];
        assert_eq!(header["sample-sequence-number"], json!(sequence));
        assert_eq!(header["source-id-type"], json!(source.class));
        assert_eq!(header["source-id-value"], json!(source.index));
    };
    match sample {
        Sample::Flow(flow) => {
            head(flow.sequence, flow.source);
            check_flow(flow, theirs);
            check_flow_records(flow.records(), theirs)
        }
        Sample::Dropped(dropped) => {
            head(dropped.sequence, dropped.source);
            assert_eq!(theirs["drops"], json!(dropped.drops));
            assert_eq!(theirs["input"], json!(dropped.input_if_index));
            assert_eq!(theirs["output"], json!(dropped.output_if_index));
            assert_eq!(theirs["reason"], json!(dropped.reason.0));
            check_flow_records(dropped.records(), theirs)
        }
        Sample::Counters(counters) => {
            head(counters.sequence, counters.source);
            let records: Vec<_> = counters.records().map(Result::unwrap).collect();
            for (record, theirs) in records.iter().zip(theirs["records"].as_array().unwrap()) {
                check_record(COUNTER_NAMES, record.format(), |visit| record.each(visit), theirs);
            }
            records.len()
        }
        other => panic!("goflow2 has no {other:?}"),
    }
}

fn check_flow(flow: &FlowSample<'_>, theirs: &Json) {
    assert_eq!(theirs["sampling-rate"], json!(flow.sampling_rate));
    assert_eq!(theirs["sample-pool"], json!(flow.sample_pool));
    assert_eq!(theirs["drops"], json!(flow.drops));
    // In these cases, only interfaces by index occur, which both forms encode alike.
    let [input, output] = match flow.form {
        Form::Compact => ["input", "output"],
        Form::Expanded => ["input-if-value", "output-if-value"],
    };
    for (name, ours) in [(input, flow.input), (output, flow.output)] {
        let ours = match ours {
            Interface::Unknown => 0,
            Interface::Index(index) => index,
            Interface::Internal => 0x3fff_ffff,
            other => panic!("{other:?}"),
        };
        assert_eq!(theirs[name], json!(ours));
    }
}

fn check_flow_records<'a>(
    records: impl Iterator<Item = Result<FlowRecord<'a>, wire::sflow::Malformed>>,
    theirs: &Json,
) -> usize {
    let records: Vec<_> = records.map(Result::unwrap).collect();
    assert_eq!(theirs["records"].as_array().unwrap().len(), records.len());
    for (record, theirs) in records.iter().zip(theirs["records"].as_array().unwrap()) {
        check_record(FLOW_NAMES, record.format(), |visit| record.each(visit), theirs);
    }
    records.len()
}

/// Bodies of the structures in a table that goflow2 knows. Of an AS path, it reads only the first segment.
fn bodies(kinds: &[Kind], names: &[(u32, &[&str])]) -> Vec<(DataFormat, Vec<u8>)> {
    let known = |kind: &&Kind| names.iter().any(|(number, _)| *number == kind.format.0);
    let body = |kind: &Kind| match kind.format.0 {
        1003 => super::bytes::words(&[1, 0x0a00_0002, 1, 2, 3, 1, 2, 2, 65_001, 65_002, 1, 7, 100]),
        1037 => [&super::bytes::words(&[7, 4])[..], b"deny", &[0, 0, 0, 2]].concat(),
        1038 => [&super::bytes::words(&[8])[..], b"ip_rcv_x"].concat(),
        _ => made::body(kind, &mut Random(5)),
    };
    kinds.iter().filter(known).map(|kind| (kind.format, body(kind))).collect()
}

/// A datagram with every form of sample and every structure that goflow2 knows.
fn ours() -> Vec<u8> {
    let flows = bodies(FlowRecord::KINDS, FLOW_NAMES);
    let flows: Vec<_> = flows
        .iter()
        .map(|(format, body)| RawRecord { format: *format, body })
        .map(|raw| FlowRecord::decode(&raw).unwrap())
        .collect();
    let counters = bodies(CounterRecord::KINDS, COUNTER_NAMES);
    let counters: Vec<_> = counters
        .iter()
        .map(|(format, body)| RawRecord { format: *format, body })
        .map(|raw| CounterRecord::decode(&raw).unwrap())
        .collect();

    let mut out = Vec::new();
    let agent = Address::V6("2001:db8::9".parse().unwrap());
    let mut writer = Writer::begin(&mut out, &Datagram::new(agent, 3, 77, 123_456));
    let source = DataSource::interface(3);
    for form in [Form::Compact, Form::Expanded] {
        let flow = FlowSample {
            form,
            sequence: 9,
            source,
            sampling_rate: 1000,
            sample_pool: 9000,
            drops: 2,
            input: Interface::Index(3),
            output: Interface::Index(4),
            raw_records: Records::EMPTY,
        };
        writer.flow(&flow, &flows);
        let sample = CountersSample { form, sequence: 8, source, raw_records: Records::EMPTY };
        writer.counters(&sample, &counters);
    }
    let dropped = DroppedPacket {
        sequence: 5,
        source,
        drops: 17,
        input_if_index: 3,
        output_if_index: 0,
        reason: DropReason(258),
        raw_records: Records::EMPTY,
    };
    writer.dropped(&dropped, &flows);
    out
}

#[test]
fn goflow2_reads_what_we_write_and_what_switches_send_as_we_do() {
    if !need_tool("goflow2") {
        return;
    }
    let flows = FLOW_NAMES.len();
    assert_eq!(check_raw(&ours()), 3 * flows + 2 * COUNTER_NAMES.len());
    assert_eq!(check_raw(COMPACT), 1);
    assert!(check_raw(EXPANDED) > 5);
}

/// Packet headers that real switches sampled.
#[test]
fn goflow2_reads_sampled_headers_as_we_do() {
    if !need_tool("goflow2") {
        return;
    }
    for bytes in [COMPACT, EXPANDED] {
        let datagram = Datagram::parse(bytes).unwrap();
        let flows: Vec<_> = datagram
            .samples()
            .map(|sample| match sample {
                Ok(Sample::Flow(flow)) => flow,
                other => panic!("{other:?}"),
            })
            .collect();
        let said = goflow2("sample", bytes, flows.len());
        assert_eq!(said.len(), flows.len());
        for (flow, theirs) in flows.iter().zip(said) {
            check_packet(flow, &theirs);
        }
    }
}

/// Does not compare ICMP's type, which goflow2 2.2.6 leaves at 0 in tagged frames.
fn check_packet(flow: &FlowSample<'_>, theirs: &Json) {
    let header = flow.records().find_map(|record| match record {
        Ok(FlowRecord::SampledHeader(header)) => Some(header),
        _ => None,
    });
    let packet = header.unwrap().packet();
    let (macs, ip) = (packet.macs.unwrap(), packet.ip.unwrap());
    let ports = ip.ports.map_or((0, 0), |ports| (ports.src, ports.dst));
    let check = |name: &str, ours: Json| assert_eq!(theirs[name], ours, "{name}");
    check("src_mac", json!(macs.src.to_string()));
    check("dst_mac", json!(macs.dst.to_string()));
    check("src_addr", json!(ip.src));
    check("dst_addr", json!(ip.dst));
    check("src_port", json!(ports.0));
    check("dst_port", json!(ports.1));
    check("ip_ttl", json!(ip.ttl));
    check("ip_tos", json!(ip.tos));
    check("tcp_flags", json!(ip.tcp_flags.unwrap_or(0)));
    check("ipv6_flow_label", json!(ip.flow_label));
    if let Some(vlan) = packet.vlan {
        check("vlan_id", json!(vlan.id()));
    }
}
