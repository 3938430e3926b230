//! sFlow: every structure written and read back, every known trap of agents and other decoders, every truncation.

mod broken;
mod bytes;
mod document;
mod goflow2;
mod layers;
mod made;
mod packet;
mod shims;
mod structures;
mod traps;

use wire::sflow::{Datagram, FlowRecord, Malformed, Sample};

/// The contents of a datagram.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) samples: usize,
    pub(crate) records: usize,
    pub(crate) malformed: Vec<Malformed>,
}

/// Reads everything in a datagram.
pub(crate) fn survey(bytes: &[u8]) -> Survey {
    let mut survey = Survey::default();
    match Datagram::parse(bytes) {
        Ok(datagram) => datagram.samples().for_each(|sample| match sample {
            Ok(sample) => survey.add(&sample),
            Err(malformed) => survey.malformed.push(malformed),
        }),
        Err(malformed) => survey.malformed.push(malformed),
    }
    survey
}

impl Survey {
    fn add(&mut self, sample: &Sample<'_>) {
        self.samples += 1;
        match sample {
            Sample::Flow(flow) => flow.records().for_each(|record| self.flow(record)),
            Sample::Dropped(dropped) => dropped.records().for_each(|record| self.flow(record)),
            Sample::Counters(counters) => counters.records().for_each(|record| {
                self.records += usize::from(record.is_ok());
                match record {
                    Ok(record) => record
                        .each(&mut |name, value| assert!(!format!("{name}{value:?}").is_empty())),
                    Err(malformed) => self.malformed.push(malformed),
                }
            }),
            Sample::Metrics(sample) => self.records += sample.metrics.filter(Result::is_ok).count(),
            Sample::RtFlow(sample) => self.records += sample.fields.filter(Result::is_ok).count(),
            Sample::Unknown(_) => {}
        }
    }

    fn flow(&mut self, record: Result<FlowRecord<'_>, Malformed>) {
        self.records += usize::from(record.is_ok());
        match record {
            Ok(record) => {
                record.each(&mut |name, value| assert!(!format!("{name}{value:?}").is_empty()));
                if let FlowRecord::SampledHeader(header) = record {
                    let packet = header.packet();
                    assert!(usize::from(packet.link_bytes) <= header.header.len());
                    std::hint::black_box(header.l3_bytes(&packet));
                }
            }
            Err(malformed) => self.malformed.push(malformed),
        }
    }
}
