//! Reading any bytes as an sFlow datagram must not panic. What could be read, written again, is read without a fault and is
//! written the same. Each address in a sampled header stands where the header's layers say.

#![no_main]

#[path = "../../crates/wire/tests/wire/sflow/layers.rs"]
mod layers;

use libfuzzer_sys::fuzz_target;
use wire::sflow::{Datagram, Fault, FlowRecord, Malformed, RtFlow, RtMetric, Sample, Writer};

fuzz_target!(|bytes: &[u8]| {
    let Some((once, _)) = rewritten(bytes) else { return };
    let (twice, faults) = rewritten(&once).expect("written by us");
    assert_eq!(faults, 0);
    assert_eq!(once, twice);
});

/// The datagram of what could be read, and the number of faults.
fn rewritten(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let datagram = Datagram::parse(bytes).ok()?;
    let (mut out, mut faults) = (Vec::new(), 0);
    let mut writer = Writer::begin(&mut out, &datagram);
    for sample in datagram.samples() {
        match sample {
            Ok(Sample::Flow(flow)) => writer.flow(&flow, &packets(flow.records(), &mut faults)),
            Ok(Sample::Dropped(dropped)) => {
                writer.dropped(&dropped, &packets(dropped.records(), &mut faults));
            }
            Ok(Sample::Counters(counters)) => {
                writer.counters(&counters, &read(counters.records(), &mut faults));
            }
            Ok(Sample::Metrics(sample)) => {
                let metrics = values(sample.metrics, &mut faults);
                let mut buf = Vec::new();
                writer.metrics(&RtMetric::write(sample.data_source, &metrics, &mut buf));
            }
            Ok(Sample::RtFlow(sample)) => {
                let fields = values(sample.fields, &mut faults);
                let mut buf = Vec::new();
                writer.rt_flow(&RtFlow::write(sample.data_source, &fields, &mut buf));
            }
            Ok(Sample::Unknown(raw)) => writer.raw(&raw),
            Err(malformed) => count(&malformed.fault, &mut faults),
        }
    }
    Some((out, faults))
}

fn count(fault: &Fault, faults: &mut usize) {
    assert!(Fault::CLASSES.contains(&fault.class()));
    *faults += 1;
}

/// Records without the broken ones.
fn read<R>(records: impl Iterator<Item = Result<R, Malformed>>, faults: &mut usize) -> Vec<R> {
    records.filter_map(|record| record.inspect_err(|e| count(&e.fault, faults)).ok()).collect()
}

/// As [`read`], with the headers of packets read too.
fn packets<'a>(
    records: impl Iterator<Item = Result<FlowRecord<'a>, Malformed>>,
    faults: &mut usize,
) -> Vec<FlowRecord<'a>> {
    let records = read(records, faults);
    for record in &records {
        if let FlowRecord::SampledHeader(header) = record {
            let packet = header.packet();
            assert!(usize::from(packet.link_bytes) <= header.header.len());
            layers::check(header.protocol, header.header, &packet);
            std::hint::black_box(header.l3_bytes(&packet));
        }
    }
    records
}

fn values<V>(values: impl Iterator<Item = Result<V, Fault>>, faults: &mut usize) -> Vec<V> {
    values.filter_map(|value| value.inspect_err(|fault| count(fault, faults)).ok()).collect()
}
