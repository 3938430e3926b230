//! What the analysis reports of flows, interfaces and agents, as rows for sinks.

use ::flows::{
    Accepted, Amounts, Cause, Compared, CounterReading, Engine, Estimate, Field, Measure, Moment,
    Part, PortCounters, Portion, Told, Traffic, Value,
};
use config::Config;
use record::{CounterRecord, CounterSubject, FlowCause, FlowRecord, FlowTotals, FlowTraffic, Tags};
use sink::{ChunkWriter, Fanout};
use sockets::attribution::{Host, HostOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

/// Most rows of flows, and of interfaces, between two ticks; a second has ten ticks. A row costs about a microsecond with the
/// analysis locked, so the maximum takes a tenth of its thread's time. Flows beyond it are reported merged.
const ROWS_MAX: u64 = 5_000;

/// Most tags of a host (`[sockets]`), and most parts of a key.
const TAGS_MAX: usize = 16;

/// Makes rows. Their run id is the writer's.
pub(crate) struct Rows {
    writer: ChunkWriter,
    host: Host,
    every: Duration,
    /// Whether the analysis reports its flows, which it does from the first time a sink was attached.
    is_told: bool,
    /// Whether the last rows were made.
    is_over: bool,
    moment: Moment,
    /// Rows of flows and of interfaces that may still be made before the next tick.
    room: [u64; 2],
    next_totals_ns: u64,
    made: Made,
}

/// Counts of what the run has made.
#[derive(Default)]
struct Made {
    flows: u64,
    counters: u64,
    merged_flows: u64,
    counters_skipped: u64,
    samples: u64,
}

impl Rows {
    pub(super) fn new(config: &Config, every: Duration, fanout: &Fanout) -> Rows {
        let about = config.sockets.as_ref();
        let host = Host::read(HostOptions {
            name: about.and_then(|one| one.host.clone()),
            host_id: about.and_then(|one| one.host_id.clone()),
            tags: about.map(|one| one.tags.clone().into_iter().collect()).unwrap_or_default(),
        });
        Rows {
            writer: fanout.writer(super::super::collector::source_id()),
            host,
            every,
            is_told: false,
            is_over: false,
            moment: Moment { clock_ns: 0, unix_ns: 0 },
            room: [ROWS_MAX; 2],
            next_totals_ns: 0,
            made: Made::default(),
        }
    }

    /// Sets the interval at which ongoing flows and agents are reported.
    pub(super) fn set_every(&mut self, every: Duration) {
        self.is_told &= self.every == every;
        self.every = every;
    }

    /// Begins a tick. When reporting begins or its interval changes, returns the interval at which the analysis should report
    /// flows.
    pub(super) fn begin_tick(&mut self, moment: Moment) -> Option<Duration> {
        self.moment = moment;
        self.room = [ROWS_MAX; 2];
        let begins = !self.is_told && !self.is_over && self.writer.has_sinks();
        self.is_told |= begins;
        begins.then_some(self.every)
    }

    /// Reports agents if they are due, and sends everything on its way.
    pub(super) fn end_tick(&mut self, engine: &Engine) {
        let Moment { clock_ns, .. } = self.moment;
        if self.is_told && clock_ns >= self.next_totals_ns {
            self.next_totals_ns = clock_ns + self.every.as_nanos() as u64;
            self.agents(engine);
            self.totals(engine);
        }
        self.writer.flush();
    }

    /// Reports agents and totals: the last rows of a run.
    pub(super) fn finish(&mut self, engine: &Engine) {
        if std::mem::take(&mut self.is_told) {
            self.agents(engine);
            self.totals(engine);
        }
        self.is_over = true;
    }

    /// Samples in the rows of flows so far.
    pub(super) fn samples(&self) -> u64 {
        self.made.samples
    }

    /// Converts a time to the wall clock.
    fn unix_ns(&self, clock_ns: u64) -> u64 {
        let Moment { clock_ns: now_ns, unix_ns } = self.moment;
        (unix_ns + clock_ns.saturating_sub(now_ns)).saturating_sub(now_ns.saturating_sub(clock_ns))
    }

    fn sequence(&self) -> u64 {
        self.made.flows + self.made.counters
    }

    fn counters(&mut self, record: &CounterRecord<'_>) {
        let mut tags = [("", ""); TAGS_MAX];
        let record = CounterRecord {
            sequence: Some(self.sequence()),
            host: self.host.name(),
            host_id: self.host.host_id(),
            tags: host_tags(&self.host, &mut tags),
            run_id: Some(self.writer.stream()),
            ..*record
        };
        let key = key_of(&(record.agent, record.sub_agent));
        self.writer.counters(&record, key);
        self.made.counters += 1;
    }

    fn agents(&mut self, engine: &Engine) {
        for (id, agent) in engine.agents() {
            let datagrams = agent.datagrams();
            let mut record = CounterRecord {
                time_unix_ns: Some(self.moment.unix_ns),
                agent: Some(id.address),
                sub_agent: Some(id.sub_agent),
                uptime_ms: Some(agent.uptime_ms()),
                datagrams_received: Some(datagrams.received),
                datagrams_lost: Some(datagrams.lost),
                datagrams_duplicate: Some(datagrams.duplicate),
                datagrams_reordered: Some(datagrams.reordered),
                restarts: Some(datagrams.resets),
                ..CounterRecord::new(CounterSubject::AGENT)
            };
            for (traffic, _, sampler) in agent.samplers() {
                if traffic == Traffic::Sampled {
                    let totals = sampler.totals();
                    add(&mut record.samples_received, totals.samples.received);
                    add(&mut record.samples_lost, totals.samples.lost);
                    add(&mut record.samples_agent_dropped, totals.agent_dropped);
                    add(&mut record.unattributed_frames, totals.unattributed_frames as u64);
                }
            }
            self.counters(&record);
        }
    }

    fn totals(&mut self, engine: &Engine) {
        let (totals, made) = (engine.totals(), &self.made);
        let mut tags = [("", ""); TAGS_MAX];
        self.writer.flow_totals(&FlowTotals {
            time_unix_ns: Some(self.moment.unix_ns),
            host: self.host.name(),
            host_id: self.host.host_id(),
            tags: host_tags(&self.host, &mut tags),
            run_id: Some(self.writer.stream()),
            next_sequence: Some(self.sequence()),
            flow_records: Some(made.flows),
            counter_records: Some(made.counters),
            merged_flows: Some(made.merged_flows),
            counters_skipped: Some(made.counters_skipped),
            samples: Some(made.samples),
            datagrams: Some(totals.datagrams),
            datagrams_read: Some(totals.read),
            datagrams_duplicate: Some(totals.duplicate),
            datagrams_malformed: Some(totals.malformed),
            datagrams_agent_limit: Some(totals.agent_limit),
            flow_samples: Some(totals.flow_samples),
            counter_samples: Some(totals.counter_samples),
            dropped_packets: Some(totals.dropped_packets),
            ..FlowTotals::new()
        });
    }
}

impl Told for Rows {
    fn flow(&mut self, portion: &Portion<'_>) -> Accepted {
        match (portion.cause, self.room[0].checked_sub(1)) {
            // The final rows are limited already: there are as many as there are flows.
            (Cause::Merged | Cause::Stopped, _) => {}
            (_, None) => return Accepted::No,
            (_, Some(room)) => self.room[0] = room,
        }

        let values: Vec<(Part, Value)> = portion.values().collect();
        let shown: Vec<(String, String)> = values
            .iter()
            .map(|(part, value)| (part.word(), part.shown(*value, portion.groups)))
            .collect();
        let key: Vec<(&str, &str)> = shown.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();

        let mut tags = [("", ""); TAGS_MAX];
        let mut record = FlowRecord {
            time_unix_ns: Some(self.moment.unix_ns),
            sequence: Some(self.sequence()),
            host: self.host.name(),
            host_id: self.host.host_id(),
            tags: host_tags(&self.host, &mut tags),
            run_id: Some(self.writer.stream()),
            definition: Some(&portion.definition.name),
            begin_unix_ns: Some(self.unix_ns(portion.first_ns)),
            end_unix_ns: Some(self.unix_ns(portion.last_ns)),
            key: (!key.is_empty()).then(|| Tags::new(&key)),
            sampler: portion.vantage,
            ..FlowRecord::new()
        };
        fill_figures(&mut record, portion);
        for ((part, value), (_, text)) in values.iter().zip(&shown) {
            fill_part(&mut record, *part, *value, text);
        }

        self.writer.flow(&record, key_of(&portion.definition.name));
        self.made.flows += 1;
        self.made.samples += portion.amounts.samples;
        self.made.merged_flows += if portion.cause == Cause::Merged { portion.flows } else { 0 };
        Accepted::Yes
    }

    fn counters(&mut self, reading: &CounterReading<'_>) {
        if !self.is_told {
            return;
        }
        let Some(counters) = reading.port.counters() else { return };
        let Some(room) = self.room[1].checked_sub(1) else {
            self.made.counters_skipped += 1;
            return;
        };
        self.room[1] = room;

        let mut record = CounterRecord {
            time_unix_ns: Some(self.unix_ns(reading.now_ns)),
            agent: Some(reading.id.address),
            sub_agent: Some(reading.id.sub_agent),
            uptime_ms: Some(reading.uptime_ms),
            ..CounterRecord::new(CounterSubject::INTERFACE)
        };
        fill_counters(&mut record, counters);
        match &reading.compared {
            Compared::Nothing => record.is_discontinuity = Some(true),
            Compared::With(before) => {
                record.is_discontinuity = Some(false);
                fill_differences(&mut record, before, counters);
                fill_rates(&mut record, reading);
            }
        }
        Rows::counters(self, &record);
    }
}

fn add(sum: &mut Option<u64>, value: u64) {
    *sum = Some(sum.unwrap_or(0) + value);
}

fn host_tags<'t>(
    host: &'t Host,
    slots: &'t mut [(&'t str, &'t str); TAGS_MAX],
) -> Option<Tags<'t>> {
    let count = slots.iter_mut().zip(host.tags()).map(|(slot, tag)| *slot = tag).count();
    (count > 0).then(|| Tags::new(&slots[..count]))
}

/// The same for rows that belong together, across restarts of the program.
fn key_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn fill_figures(record: &mut FlowRecord<'_>, portion: &Portion<'_>) {
    let Amounts { samples, bytes, frames, raw_bytes, raw_frames } = portion.amounts;
    let ends = |estimate: Estimate| (estimate.low.floor() as u64, estimate.high.ceil() as u64);
    let (bytes_low, bytes_high) = ends(portion.bytes);
    let (frames_low, frames_high) = ends(portion.frames);

    record.cause = Some(match portion.cause {
        Cause::Active => FlowCause::ACTIVE,
        Cause::Ended => FlowCause::ENDED,
        Cause::Evicted => FlowCause::EVICTED,
        Cause::Stopped => FlowCause::STOPPED,
        Cause::Merged => FlowCause::MERGED,
    });
    record.traffic = Some(match portion.definition.traffic {
        Traffic::Sampled => FlowTraffic::SAMPLED,
        Traffic::Dropped => FlowTraffic::DROPPED,
    });
    record.merged_flows = (portion.cause == Cause::Merged).then_some(portion.flows);
    record.samples = Some(samples);
    record.bytes = Some(bytes);
    record.bytes_low = Some(bytes_low);
    record.bytes_high = Some(bytes_high);
    record.frames = Some(frames);
    record.frames_low = Some(frames_low);
    record.frames_high = Some(frames_high);
    record.raw_bytes = Some(raw_bytes);
    record.raw_frames = Some(raw_frames);
    let is_scaled = portion.definition.measure != Measure::Samples;
    record.rate_missing_max =
        (is_scaled && portion.flows == 1).then_some(portion.rate_missing_max.ceil() as u64);
}

/// Writes a part of the key into its own field.
fn fill_part<'t>(record: &mut FlowRecord<'t>, part: Part, value: Value, text: &'t str) {
    match (part, value) {
        (Part::Field(field), Value::Number(number)) => fill_number(record, field, number),
        (Part::Field(field), Value::Address(address)) => fill_address(record, field, address),
        (Part::Field(Field::SrcMac), Value::Mac(_)) => record.src_mac = Some(text),
        (Part::Field(Field::DstMac), Value::Mac(_)) => record.dst_mac = Some(text),
        (Part::Prefix(field, v4, v6), Value::Address(address)) => {
            fill_address(record, field, address);
            let bits = Some(if address.is_ipv4() { v4 } else { v6 });
            match field {
                Field::Src => record.src_prefix_bits = bits,
                Field::Dst => record.dst_prefix_bits = bits,
                _ => {}
            }
        }
        (Part::Group(Field::Src), _) => record.src_group = Some(text),
        (Part::Group(Field::Dst), _) => record.dst_group = Some(text),
        _ => {}
    }
}

fn fill_address(record: &mut FlowRecord<'_>, field: Field, address: IpAddr) {
    let slot = match field {
        Field::Agent => &mut record.agent_address,
        Field::Src => &mut record.src_address,
        Field::Dst => &mut record.dst_address,
        Field::InnerSrc => &mut record.inner_src_address,
        Field::InnerDst => &mut record.inner_dst_address,
        Field::NextHop => &mut record.next_hop,
        _ => return,
    };
    *slot = Some(address);
}

/// Writes a number into its field. A number that does not fit stays in the key alone.
fn fill_number(record: &mut FlowRecord<'_>, field: Field, number: u64) {
    let as_u8 = || u8::try_from(number).ok();
    let as_u16 = || u16::try_from(number).ok();
    let as_u32 = || u32::try_from(number).ok();
    match field {
        Field::SubAgent => record.sub_agent = as_u32(),
        Field::Source => record.data_source = as_u32(),
        Field::Input => record.input_interface = as_u32(),
        Field::Output => record.output_interface = as_u32(),
        Field::Ethertype => record.ethertype = as_u16(),
        Field::Vlan => record.vlan = as_u16(),
        Field::InnerVlan => record.inner_vlan = as_u16(),
        Field::MplsLabel => record.mpls_label = as_u32(),
        Field::IpVersion => record.ip_version = as_u8(),
        Field::Protocol => record.protocol = as_u8(),
        Field::Dscp => record.dscp = as_u8(),
        Field::Ttl => record.ttl = as_u8(),
        Field::Fragment => record.fragment = Some(number != 0),
        Field::SrcPort => record.src_port = as_u16(),
        Field::DstPort => record.dst_port = as_u16(),
        Field::TcpFlags => record.tcp_flags = as_u16(),
        Field::IcmpType => record.icmp_type = as_u8(),
        Field::IcmpCode => record.icmp_code = as_u8(),
        Field::FrameSize => record.frame_size_bytes = as_u32(),
        Field::Vni => record.vni = as_u32(),
        Field::InnerProtocol => record.inner_protocol = as_u8(),
        Field::InnerSrcPort => record.inner_src_port = as_u16(),
        Field::InnerDstPort => record.inner_dst_port = as_u16(),
        Field::SrcAs => record.src_as = as_u32(),
        Field::DstAs => record.dst_as = as_u32(),
        Field::PeerAs => record.peer_as = as_u32(),
        Field::DropReason => record.drop_reason = as_u32(),
        Field::TransitDelay => record.transit_delay_ns = as_u32(),
        Field::QueueDepth => record.queue_depth_bytes = as_u32(),
        Field::Queue => record.queue = as_u32(),
        _ => {}
    }
}

fn fill_counters(record: &mut CounterRecord<'_>, counters: &PortCounters) {
    record.if_index = Some(counters.if_index);
    record.if_type = Some(counters.if_type);
    record.speed_bits_per_sec = Some(counters.speed_bits_per_sec);
    record.if_direction = u8::try_from(counters.direction).ok();
    record.is_admin_up = Some(counters.status & 1 != 0);
    record.is_oper_up = Some(counters.status & 2 != 0);
    record.promiscuous_mode = u8::try_from(counters.promiscuous_mode).ok();
    record.in_octets = Some(counters.in_octets);
    record.in_unicast_packets = Some(counters.in_ucast_packets);
    record.in_multicast_packets = Some(counters.in_multicast_packets);
    record.in_broadcast_packets = Some(counters.in_broadcast_packets);
    record.in_discards = Some(counters.in_discards);
    record.in_errors = Some(counters.in_errors);
    record.in_unknown_protocols = Some(counters.in_unknown_protos);
    record.out_octets = Some(counters.out_octets);
    record.out_unicast_packets = Some(counters.out_ucast_packets);
    record.out_multicast_packets = Some(counters.out_multicast_packets);
    record.out_broadcast_packets = Some(counters.out_broadcast_packets);
    record.out_discards = Some(counters.out_discards);
    record.out_errors = Some(counters.out_errors);
}

fn fill_differences(record: &mut CounterRecord<'_>, a: &PortCounters, b: &PortCounters) {
    // All ones means that the agent does not have the counter.
    let wide = |before: u64, after: u64| {
        // What goes back and is compared all the same has wrapped. Some agents count octets with 32 bits.
        let grown = match (u32::try_from(before), u32::try_from(after)) {
            (Ok(before), Ok(after)) => after.wrapping_sub(before).into(),
            _ => after.wrapping_sub(before),
        };
        (before != u64::MAX && after != u64::MAX).then_some(grown)
    };
    let narrow = |before: u32, after: u32| {
        (before != u32::MAX && after != u32::MAX).then(|| after.wrapping_sub(before))
    };
    record.in_octets_delta = wide(a.in_octets, b.in_octets);
    record.in_unicast_packets_delta = narrow(a.in_ucast_packets, b.in_ucast_packets);
    record.in_multicast_packets_delta = narrow(a.in_multicast_packets, b.in_multicast_packets);
    record.in_broadcast_packets_delta = narrow(a.in_broadcast_packets, b.in_broadcast_packets);
    record.in_discards_delta = narrow(a.in_discards, b.in_discards);
    record.in_errors_delta = narrow(a.in_errors, b.in_errors);
    record.in_unknown_protocols_delta = narrow(a.in_unknown_protos, b.in_unknown_protos);
    record.out_octets_delta = wide(a.out_octets, b.out_octets);
    record.out_unicast_packets_delta = narrow(a.out_ucast_packets, b.out_ucast_packets);
    record.out_multicast_packets_delta = narrow(a.out_multicast_packets, b.out_multicast_packets);
    record.out_broadcast_packets_delta = narrow(a.out_broadcast_packets, b.out_broadcast_packets);
    record.out_discards_delta = narrow(a.out_discards, b.out_discards);
    record.out_errors_delta = narrow(a.out_errors, b.out_errors);
}

fn fill_rates(record: &mut CounterRecord<'_>, reading: &CounterReading<'_>) {
    let Some(rates) = reading.port.rates() else { return };
    record.interval_ms = Some(rates.since_ms);
    record.missed_polls = Some(rates.missed);
    record.sampled_ratio_permille =
        rates.sampled_ratio.map(|ratio| (ratio * 1_000.0).round() as u32);

    // Those of the port may be over two uneven polls. A row's are those of its differences.
    let seconds = f64::from(rates.since_ms.max(1)) / 1e3;
    let per_s = |amount: Option<u64>| amount.map(|amount| (amount as f64 / seconds).round() as u64);
    let bits = |octets: Option<u64>| octets.map(|octets| octets.saturating_mul(8));
    let sum = |frames: [Option<u32>; 3]| {
        frames.into_iter().flatten().map(u64::from).reduce(|sum, one| sum + one)
    };
    record.in_bits_per_sec = per_s(bits(record.in_octets_delta));
    record.out_bits_per_sec = per_s(bits(record.out_octets_delta));
    let frames = [
        record.in_unicast_packets_delta,
        record.in_multicast_packets_delta,
        record.in_broadcast_packets_delta,
    ];
    record.in_packets_per_sec = per_s(rates.input.frames_per_s.and_then(|_| sum(frames)));
    let frames = [
        record.out_unicast_packets_delta,
        record.out_multicast_packets_delta,
        record.out_broadcast_packets_delta,
    ];
    record.out_packets_per_sec = per_s(rates.output.frames_per_s.and_then(|_| sum(frames)));
}

#[cfg(test)]
mod tests;
