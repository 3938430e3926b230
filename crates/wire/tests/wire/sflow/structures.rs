//! The tables compared with the specifications, and every structure read and written.

use std::collections::HashSet;

use testkit::Random;
use wire::sflow::{
    CounterRecord, DataFormat, Datagram, DropReason, FlowRecord, Kind, Metric, MetricValue,
    RawRecord, RtFlow, RtMetric, Sample, Text, Value, Writer,
};

use super::made;

/// Sizes of the structures with a fixed length, from the specifications.
const FLOW_BYTES: &[(u32, usize)] = &[
    (2, 24),
    (3, 32),
    (4, 56),
    (1001, 16),
    (1011, 4),
    (1020, 8),
    (1021, 24),
    (1022, 24),
    (1023, 32),
    (1024, 32),
    (1025, 56),
    (1026, 56),
    (1027, 4),
    (1028, 4),
    (1029, 4),
    (1030, 4),
    (1036, 4),
    (1039, 4),
    (1040, 4),
    (1043, 8),
    (2100, 20),
    (2101, 44),
    (2102, 20),
    (2103, 44),
    (2209, 48),
    (2210, 16),
];
const COUNTER_BYTES: &[(u32, usize)] = &[
    (1, 88),
    (2, 52),
    (5, 28),
    (6, 80),
    (7, 56),
    (8, 24),
    (11, 20),
    (1001, 28),
    (1002, 12),
    (1004, 12),
    (2002, 8),
    (2003, 80),
    (2004, 72),
    (2005, 52),
    (2006, 40),
    (2007, 76),
    (2008, 100),
    (2009, 60),
    (2010, 28),
    (2100, 28),
    (2101, 12),
    (2102, 16),
    (2103, 52),
    (2104, 40),
    (2207, 24),
    (4413 << 12 | 1, 8),
    (4413 << 12 | 3, 144),
    (5703 << 12 | 1, 48),
];

#[test]
fn fixed_structures_have_the_length_of_the_specifications() {
    let check = |kinds: &[Kind], wanted: &[(u32, usize)]| {
        let fixed: Vec<_> = kinds
            .iter()
            .filter(|kind| !kind.fields.iter().any(|(_, kind)| is_variable(kind)))
            .map(|kind| (kind.format.0, made::body(kind, &mut Random(1)).len()))
            .collect();
        assert_eq!(fixed, wanted);
    };
    check(FlowRecord::KINDS, FLOW_BYTES);
    check(CounterRecord::KINDS, COUNTER_BYTES);
}

fn is_variable(kind: &str) -> bool {
    ["text", "bytes", "address", "AS path"].contains(&kind) || kind.starts_with("list")
}

#[test]
fn no_number_and_no_name_is_taken_twice() {
    for kinds in [FlowRecord::KINDS, CounterRecord::KINDS] {
        let numbers: HashSet<_> = kinds.iter().map(|kind| kind.format).collect();
        let names: HashSet<_> = kinds.iter().map(|kind| kind.name).collect();
        assert_eq!((numbers.len(), names.len()), (kinds.len(), kinds.len()));
        for kind in kinds {
            let fields: HashSet<_> = kind.fields.iter().map(|(name, _)| name).collect();
            assert_eq!(fields.len(), kind.fields.len(), "{}", kind.name);
        }
    }
}

/// Bytes generated from the table, through the types, and back.
#[test]
fn every_structure_is_written_as_it_was_read() {
    for seed in 0..50 {
        let bytes = made::everything(seed);
        let datagram = Datagram::parse(&bytes).unwrap();
        assert_eq!(written(&datagram), bytes, "seed {seed}");
    }
}

/// The datagram, with each of its samples and records decoded and re-encoded.
pub(super) fn written(datagram: &Datagram<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, datagram);
    for sample in datagram.samples() {
        match sample.unwrap() {
            Sample::Flow(flow) => {
                let records: Vec<_> = flow.records().map(Result::unwrap).collect();
                writer.flow(&flow, &records);
            }
            Sample::Counters(counters) => {
                let records: Vec<_> = counters.records().map(Result::unwrap).collect();
                writer.counters(&counters, &records);
            }
            Sample::Dropped(dropped) => {
                let records: Vec<_> = dropped.records().map(Result::unwrap).collect();
                writer.dropped(&dropped, &records);
            }
            Sample::Metrics(sample) => {
                let metrics: Vec<_> = sample.metrics.map(Result::unwrap).collect();
                let mut buf = Vec::new();
                writer.metrics(&RtMetric::write(sample.data_source, &metrics, &mut buf));
            }
            Sample::RtFlow(sample) => {
                let fields: Vec<_> = sample.fields.map(Result::unwrap).collect();
                let mut buf = Vec::new();
                let flow = RtFlow::write(sample.data_source, &fields, &mut buf);
                let (sampling_rate, sample_pool) = (sample.sampling_rate, sample.sample_pool);
                writer.rt_flow(&RtFlow { sampling_rate, sample_pool, ..flow });
            }
            Sample::Unknown(raw) => writer.raw(&raw),
        }
    }
    out
}

#[test]
fn visitors_see_the_fields_of_the_table_in_order() {
    let random = &mut Random(3);
    for kind in FlowRecord::KINDS {
        let body = made::body(kind, random);
        let record = FlowRecord::decode(&RawRecord { format: kind.format, body: &body }).unwrap();
        assert_eq!((record.format(), record.name()), (kind.format, Some(kind.name)));
        let mut seen = Vec::new();
        record.each(&mut |name, _| seen.push(name));
        assert!(kind.fields.iter().map(|(name, _)| *name).eq(seen), "{}", kind.name);
    }

    // For an interface, the numbers too: words that count up.
    let words: Vec<u32> = (1..=22).collect();
    let body = super::bytes::words(&words);
    let record = RawRecord { format: DataFormat::new(0, 1), body: &body };
    let mut seen = Vec::new();
    CounterRecord::decode(&record).unwrap().each(&mut |_, value| match value {
        Value::U32(value) => seen.push(value),
        Value::Counter32(value) => seen.push(value.known().unwrap()),
        Value::U64(value) => seen.extend([(value >> 32) as u32, value as u32]),
        Value::Counter64(value) => seen.extend([(value.0 >> 32) as u32, value.0 as u32]),
        other => panic!("{other:?}"),
    });
    assert_eq!(seen, words);
}

#[test]
fn a_host_cpu_of_before_2014_lacks_its_last_three_fields() {
    let kind = CounterRecord::KINDS.iter().find(|kind| kind.name == "host_cpu").unwrap();
    let body = made::body(kind, &mut Random(4));
    for (len, wanted) in [(68, 0), (72, 1), (76, 2), (80, 3)] {
        let record = RawRecord { format: kind.format, body: &body[..len] };
        let CounterRecord::HostCpu(cpu) = CounterRecord::decode(&record).unwrap() else { panic!() };
        let there = [cpu.steal_ms, cpu.guest_ms, cpu.guest_nice_ms];
        assert_eq!(there.iter().flatten().count(), wanted);
    }
}

#[test]
fn what_a_metric_or_a_flow_cannot_hold_is_left_out() {
    let metric = |value| Metric { name: Text(b"a"), value };
    let all = [
        metric(MetricValue::Counter32(wire::sflow::Counter32(1))),
        metric(MetricValue::Ipv4([1, 2, 3, 4].into())),
        metric(MetricValue::U32(5)),
    ];
    let mut buf = Vec::new();
    let metrics: Vec<_> = RtMetric::write(Text(b"s"), &all, &mut buf).metrics.flatten().collect();
    assert_eq!(metrics, [all[0], all[2]]);
    let mut buf = Vec::new();
    let fields: Vec<_> = RtFlow::write(Text(b"s"), &all, &mut buf).fields.flatten().collect();
    assert_eq!(fields, [all[1], all[2]]);
}

#[test]
fn reasons_have_names_and_numbers() {
    let check = |number, name| assert_eq!(DropReason(number).name(), Some(name));
    check(0, "net");
    check(15, "precedence_cutoff");
    check(256, "unknown");
    check(258, "acl");
    check(303, "split_horizon");
    check(307, "vxlan_parsing");
    check(336, "icmp_parsing");
    check(356, "tcp_minttl");
    check(362, "ipv6_ndisc_ns_otherhost");
    check(372, "bgp_flowspec");
    for number in [16, 255, 373, u32::MAX] {
        assert_eq!(DropReason(number).name(), None);
    }
    // Numbers that host-sflow sends by mistake.
    check(33, "dev_hdr");
    check(36, "tc_egress");
    assert_eq!(DropReason(33).normal(), DropReason(332));
    assert_eq!(DropReason(36).normal(), DropReason(366));

    assert_eq!(DropReason::all().count(), 16 + 117);
    for (reason, name) in DropReason::all() {
        assert_eq!((reason.name(), DropReason::from_name(name)), (Some(name), Some(reason)));
    }
    assert_eq!(DropReason(258).to_string(), "acl");
    assert_eq!(DropReason(9999).to_string(), "9999");
}

#[test]
fn text_of_agents_prints_as_one_harmless_line() {
    let check = |bytes: &[u8], wanted| assert_eq!(Text(bytes).to_string(), wanted);
    check(b"leaf-1", "leaf-1");
    check("Gr\u{fc}n".as_bytes(), "Gr\u{fc}n");
    check(b"a\x1b[2Jb\nc\0", "a\\u{1b}[2Jb\\u{a}c\\u{0}");
    check(b"a\xffb", "a\u{fffd}b");
    check("\u{202e}x\u{9b}".as_bytes(), "\\u{202e}x\\u{9b}");
}
