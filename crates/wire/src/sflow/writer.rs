//! Encodes datagrams, for experiments and for tests.

use super::datagram::VERSION;
use super::sample::Form;
use super::xdr::{Xdr, put_u32};
use super::{
    CounterRecord, CountersSample, DataFormat, DataSource, Datagram, DroppedPacket, FlowRecord,
    FlowSample, Interface, RawRecord, RtFlow, RtMetric,
};
use crate::bytes::count;

/// Appends one datagram to the caller's buffer, sample by sample. It is complete after each sample.
pub struct Writer<'b> {
    out: &'b mut Vec<u8>,
    /// Position of the sample count.
    count_at: usize,
    samples: u32,
}

impl<'b> Writer<'b> {
    /// Writes the header of `datagram`, without its samples.
    pub fn begin(out: &'b mut Vec<u8>, datagram: &Datagram<'_>) -> Self {
        put_u32(out, VERSION);
        datagram.agent.put(out);
        for word in [datagram.sub_agent, datagram.sequence, datagram.uptime_ms] {
            put_u32(out, word);
        }
        let count_at = out.len();
        put_u32(out, 0);
        Self { out, count_at, samples: 0 }
    }

    /// Writes a flow sample in its form, with these records.
    pub fn flow(&mut self, sample: &FlowSample<'_>, records: &[FlowRecord<'_>]) {
        let format = match sample.form {
            Form::Compact => 1,
            Form::Expanded => 3,
        };
        self.sample(DataFormat::new(0, format), |out| {
            put_u32(out, sample.sequence);
            put_source(out, sample.source, sample.form);
            for word in [sample.sampling_rate, sample.sample_pool, sample.drops] {
                put_u32(out, word);
            }
            put_interface(out, sample.input, sample.form);
            put_interface(out, sample.output, sample.form);
            put_flow_records(out, records);
        });
    }

    /// Writes a counter sample in its form, with these records.
    pub fn counters(&mut self, sample: &CountersSample<'_>, records: &[CounterRecord<'_>]) {
        let format = match sample.form {
            Form::Compact => 2,
            Form::Expanded => 4,
        };
        self.sample(DataFormat::new(0, format), |out| {
            put_u32(out, sample.sequence);
            put_source(out, sample.source, sample.form);
            put_u32(out, count(records.len()));
            for record in records {
                put_record(out, record.format(), |out| record.write(out));
            }
        });
    }

    /// Writes a dropped packet, with these records.
    pub fn dropped(&mut self, sample: &DroppedPacket<'_>, records: &[FlowRecord<'_>]) {
        self.sample(DataFormat::new(0, 5), |out| {
            put_u32(out, sample.sequence);
            put_source(out, sample.source, Form::Expanded);
            put_u32(out, sample.drops);
            put_u32(out, sample.input_if_index);
            put_u32(out, sample.output_if_index);
            put_u32(out, sample.reason.0);
            put_flow_records(out, records);
        });
    }

    /// Writes named metrics.
    pub fn metrics(&mut self, sample: &RtMetric<'_>) {
        self.sample(RtMetric::FORMAT, |out| sample.put(out));
    }

    /// Writes a flow with named fields.
    pub fn rt_flow(&mut self, sample: &RtFlow<'_>) {
        self.sample(RtFlow::FORMAT, |out| sample.put(out));
    }

    /// Writes a sample of any format unchanged.
    pub fn raw(&mut self, sample: &RawRecord<'_>) {
        self.sample(sample.format, |out| out.extend_from_slice(sample.body));
    }

    fn sample(&mut self, format: DataFormat, body: impl FnOnce(&mut Vec<u8>)) {
        put_record(self.out, format, body);
        self.samples += 1;
        set_u32(self.out, self.count_at, self.samples);
    }
}

/// Writes number, length and body.
fn put_record(out: &mut Vec<u8>, format: DataFormat, body: impl FnOnce(&mut Vec<u8>)) {
    put_u32(out, format.0);
    let length_at = out.len();
    put_u32(out, 0);
    body(out);
    let length = out.len() - length_at - 4;
    set_u32(out, length_at, count(length));
}

fn put_flow_records(out: &mut Vec<u8>, records: &[FlowRecord<'_>]) {
    put_u32(out, count(records.len()));
    for record in records {
        put_record(out, record.format(), |out| record.write(out));
    }
}

fn put_source(out: &mut Vec<u8>, source: DataSource, form: Form) {
    match form {
        // An index that is too large leaves no room for the class, which is 0.
        Form::Compact if source.class == DataSource::INTERFACE => put_u32(out, source.index),
        Form::Compact => put_u32(out, source.class << 24 | source.index & 0x00ff_ffff),
        Form::Expanded => {
            put_u32(out, source.class);
            put_u32(out, source.index);
        }
    }
}

fn put_interface(out: &mut Vec<u8>, interface: Interface, form: Form) {
    let (format, value) = interface.parts(form);
    match form {
        Form::Compact => put_u32(out, format << 30 | value & 0x3fff_ffff),
        Form::Expanded => {
            put_u32(out, format);
            put_u32(out, value);
        }
    }
}

fn set_u32(out: &mut [u8], at: usize, value: u32) {
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}
