//! Decodes sFlow. The unit of each benchmark is one datagram of 1,204 bytes with five flow samples, each with a sampled header
//! of 128 bytes (TCP over IPv4) and a switch record, and four of them with a router record: 14 records.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wire::sflow::flow::{Router, SampledHeader, Switch};
use wire::sflow::{
    Address, DataSource, Datagram, FlowRecord, FlowSample, Form, Interface, Records, Sample, Writer,
};

/// Ethernet, a VLAN tag, IPv4, TCP, and application data.
fn header(sample: u8) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 100, 8, 0];
    bytes.extend([0x45, 0, 5, 0xdc, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, sample, 10, 1, 0, 2]);
    bytes.extend([0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    bytes.resize(128, 0x55);
    bytes
}

fn datagram() -> Vec<u8> {
    let headers: Vec<_> = (1..=5).map(header).collect();
    let mut out = Vec::new();
    let agent = Address::V4([10, 0, 0, 1].into());
    let mut writer = Writer::begin(&mut out, &Datagram::new(agent, 0, 1, 1000));
    for (index, header) in headers.iter().enumerate() {
        let sampled =
            SampledHeader { protocol: 1, frame_length_bytes: 1522, stripped_bytes: 4, header };
        let switch = Switch { src_vlan: 100, src_priority: 0, dst_vlan: 100, dst_priority: 0 };
        let next_hop = Address::V4([10, 9, 9, 9].into());
        let router = Router { next_hop, src_mask_bits: 24, dst_mask_bits: 16 };
        let records = [
            FlowRecord::SampledHeader(sampled),
            FlowRecord::ExtendedSwitch(switch),
            FlowRecord::ExtendedRouter(router),
        ];
        let sample = FlowSample {
            form: Form::Compact,
            sequence: index as u32,
            source: DataSource::interface(3),
            sampling_rate: 1000,
            sample_pool: 1000 * index as u32,
            drops: 0,
            input: Interface::Index(3),
            output: Interface::Index(4),
            raw_records: Records::EMPTY,
        };
        writer.flow(&sample, &records[..if index == 4 { 2 } else { 3 }]);
    }
    out
}

/// Decodes all samples and records, and returns the number of records.
fn decode(bytes: &[u8]) -> usize {
    let Ok(datagram) = Datagram::parse(bytes) else { return 0 };
    let mut count = 0;
    for sample in datagram.samples() {
        let Ok(Sample::Flow(flow)) = sample else { continue };
        for record in flow.records() {
            count += usize::from(black_box(&record).is_ok());
        }
    }
    count
}

/// Like [`decode`], and also parses the sampled headers; returns the sum of the ports.
fn decode_with_packets(bytes: &[u8]) -> u32 {
    let Ok(datagram) = Datagram::parse(bytes) else { return 0 };
    let mut sum = 0;
    for sample in datagram.samples() {
        let Ok(Sample::Flow(flow)) = sample else { continue };
        for record in flow.records() {
            if let Ok(FlowRecord::SampledHeader(header)) = black_box(&record) {
                let packet = header.packet();
                let ip = black_box(&packet).ip;
                sum += ip.and_then(|ip| ip.ports).map_or(0, |ports| u32::from(ports.dst));
            }
        }
    }
    sum
}

fn sflow(c: &mut Criterion) {
    let bytes = datagram();
    assert_eq!((bytes.len(), decode(&bytes), decode_with_packets(&bytes)), (1204, 14, 5 * 443));
    let mut group = c.benchmark_group("sflow");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("decode", |b| b.iter(|| decode(black_box(&bytes))));
    group.bench_function("decode_with_packets", |b| {
        b.iter(|| decode_with_packets(black_box(&bytes)));
    });
    group.finish();
}

criterion_group!(benches, sflow);
criterion_main!(benches);
