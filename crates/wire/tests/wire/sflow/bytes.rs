//! Hand-written datagrams, byte by byte, without using the encoder.

use wire::sflow::{Address, DataSource, Datagram, Direction, FlowRecord, Form, Interface, Sample};

/// Words in network byte order.
pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A datagram of 10.0.0.1 with these encoded samples.
pub(super) fn datagram(samples: &[&[u8]]) -> Vec<u8> {
    let mut bytes = words(&[5, 1, 0x0a00_0001, 7, 100, 60_000, samples.len() as u32]);
    samples.iter().for_each(|sample| bytes.extend_from_slice(sample));
    bytes
}

/// A sample or a record: number, length, body.
pub(super) fn tlv(format: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = words(&[format, body.len() as u32]);
    bytes.extend_from_slice(body);
    bytes
}

/// A compact flow sample with these encoded records.
pub(super) fn flow(records: &[&[u8]]) -> Vec<u8> {
    let mut body = words(&[9, 3, 1000, 9000, 2, 3, 4, records.len() as u32]);
    records.iter().for_each(|record| body.extend_from_slice(record));
    tlv(1, &body)
}

#[test]
fn a_flow_sample() {
    let bytes = datagram(&[&flow(&[&tlv(1001, &words(&[10, 1, 20, u32::MAX]))])]);
    let datagram = Datagram::parse(&bytes).unwrap();
    assert_eq!(datagram.agent, Address::V4([10, 0, 0, 1].into()));
    assert_eq!((datagram.sub_agent, datagram.sequence, datagram.uptime_ms), (7, 100, 60_000));

    let Sample::Flow(flow) = datagram.samples().next().unwrap().unwrap() else { panic!() };
    assert_eq!((flow.form, flow.sequence), (Form::Compact, 9));
    assert_eq!(flow.source, DataSource::interface(3));
    assert_eq!((flow.sampling_rate, flow.sample_pool, flow.drops), (1000, 9000, 2));
    assert_eq!((flow.input, flow.output), (Interface::Index(3), Interface::Index(4)));
    assert_eq!(flow.direction(), Direction::Ingress);

    let FlowRecord::ExtendedSwitch(switch) = flow.records().next().unwrap().unwrap() else {
        panic!()
    };
    assert_eq!((switch.src_vlan, switch.dst_vlan, switch.dst_priority), (10, 20, u32::MAX));
}
