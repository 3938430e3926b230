//! Evaluates a filter on records instead of kernel messages.

use super::ast::{Device, Expr, Test, TextField};
use super::evaluate::{DEFAULT_LOCAL_PORTS, fits, inside, port_holds, state_in};
use super::fields::{Field, MemoryField, Source};
use super::{Filter, Verdict};
use crate::Limit;
use record::{Cell, CellReader, DecodeError, RecordKind, SocketRecord, SocketState};
use std::net::IpAddr;
use wire::inet_diag::State;
use wire::inet_diag::bytecode::End;
use wire::inet_diag::tcp_info::{self, Unit};

/// A filter for socket records: what a record does not say is unknown. The record of a close is in the state in which the last
/// poll saw its connection.
pub struct RecordFilter {
    filter: Filter,
    reader: CellReader,
    /// The fields of `tcp_info` that the filter compares, and their values in the current record.
    compared: Vec<(&'static tcp_info::Field, Option<u64>)>,
}

impl RecordFilter {
    /// A filter for records with whatever fields.
    #[must_use]
    pub fn new(filter: Filter) -> RecordFilter {
        let mut columns: Vec<&'static record::Field> = Vec::new();
        let mut compared: Vec<(&'static tcp_info::Field, Option<u64>)> = Vec::new();
        if let Some(expression) = filter.expression() {
            expression.for_each_test(&mut |test| {
                let Test::Number(field, ..) = test else { return };
                let Source::TcpInfo(info) = field.source() else { return };
                let fills = |column: &&record::Field| column.tcp_info_field == Some(info.name);
                let column = SocketRecord::FIELDS.iter().find(fills);
                let is_new = compared.iter().all(|(known, _)| known.name != info.name);
                if let Some(column) = column.filter(|_| is_new) {
                    columns.push(column);
                    compared.push((info, None));
                }
            });
        }
        RecordFilter { reader: CellReader::new(&columns), filter, compared }
    }

    /// Whether a record certainly passes. `message` is its protobuf message.
    ///
    /// # Errors
    /// It is not a socket record.
    pub fn matches(&mut self, message: &[u8]) -> Result<bool, DecodeError> {
        let record = record::decode_protobuf(message)?;
        self.compared.iter_mut().for_each(|(_, value)| *value = None);
        let compared = &mut self.compared;
        self.reader.read(message, |column, cell| {
            if let Cell::Number(number) = cell {
                compared[column].1 = Some(number);
            }
        })?;

        let recorded = Recorded { record: &record, compared: &self.compared };
        let state = recorded.state();
        let states = self
            .filter
            .states
            .map(|states| Verdict::known(state.map(|state| state_in(state, states))));
        let says = self.filter.expression.as_ref().map(|expression| recorded.evaluate(expression));
        Ok(Verdict::all(states.into_iter().chain(says)).passes())
    }
}

/// A record, and the values of `tcp_info` that are compared.
struct Recorded<'r> {
    record: &'r SocketRecord<'r>,
    compared: &'r [(&'static tcp_info::Field, Option<u64>)],
}

impl Recorded<'_> {
    fn evaluate(&self, expression: &Expr) -> Verdict {
        match expression {
            Expr::All(parts) => Verdict::all(parts.iter().map(|part| self.evaluate(part))),
            Expr::Any(parts) => Verdict::any(parts.iter().map(|part| self.evaluate(part))),
            Expr::Not(inner) => !self.evaluate(inner),
            Expr::Test(test) => self.answer(test),
        }
    }

    fn answer(&self, test: &Test) -> Verdict {
        let record = self.record;
        match test {
            Test::Host(end, prefix, port) => {
                let address = prefix.map(|prefix| {
                    Verdict::known(self.address(*end).map(|address| inside(address, prefix)))
                });
                let port =
                    port.map(|port| Verdict::known(self.port(*end).map(|known| known == port)));
                Verdict::all(address.into_iter().chain(port))
            }
            Test::Port(end, test, wanted) => {
                let holds = |port| port_holds(*test, port, *wanted);
                Verdict::known(self.port(*end).map(holds))
            }
            Test::Autobound => {
                let (first, last) = DEFAULT_LOCAL_PORTS;
                Verdict::known(record.src_port.map(|port| (first..=last).contains(&port)))
            }
            Test::Device(Device::Index(index)) => {
                Verdict::known(record.interface_index.map(|known| known == *index))
            }
            // A record has no name of an interface, but a socket bound to none is bound to none of any name.
            Test::Device(Device::Name(_)) => {
                Verdict::known(record.interface_index.filter(|index| *index == 0).map(|_| false))
            }
            Test::Mark { value, mask } => {
                Verdict::known(record.mark.map(|mark| mark & mask == *value))
            }
            Test::Cgroup { id, .. } => Verdict::known(record.cgroup_id.map(|known| known == *id)),
            Test::State(states) => {
                Verdict::known(self.state().map(|state| state_in(state, *states)))
            }
            Test::Family(family) => {
                let known = |word: record::AddressFamily| word.0 == family.number();
                Verdict::known(record.family.map(known))
            }
            Test::Number(field, compare, wanted) => {
                Verdict::known(self.number(*field).map(|value| compare.holds(value, *wanted)))
            }
            Test::Text(field, pattern) => Verdict::known(
                self.text(*field).map(|text| text.is_some_and(|text| fits(pattern, text))),
            ),
        }
    }

    fn state(&self) -> Option<State> {
        let record = self.record;
        let is_close = record.record_kind == Some(RecordKind::CLOSE);
        let word: Option<SocketState> = if is_close { record.last_state } else { record.state };
        word.map(|word| State::from_number(word.0))
    }

    fn address(&self, end: End) -> Option<IpAddr> {
        match end {
            End::Source => self.record.src_address,
            End::Destination => self.record.dst_address,
        }
    }

    fn port(&self, end: End) -> Option<u16> {
        match end {
            End::Source => self.record.src_port,
            End::Destination => self.record.dst_port,
        }
    }

    /// A number in the unit that filters use: microseconds, or bits per second.
    fn number(&self, field: Field) -> Option<u64> {
        let record = self.record;
        let is_listener = self.state() == Some(State::Listen);
        let number = |value: Option<u32>| value.map(u64::from);
        match field.source() {
            Source::TcpInfo(info) => self.tcp_info(info),
            Source::ReceiveQueue => number(record.receive_queue),
            Source::SendQueue => number(record.send_queue),
            Source::Waiting => number(record.receive_queue).filter(|_| is_listener),
            Source::Backlog => number(record.send_queue).filter(|_| is_listener),
            Source::Uid => number(record.uid),
            Source::Inode => number(record.inode),
            Source::Cookie => record.cookie,
            Source::Pid => number(record.process_id),
            Source::Drops => number(record.drops),
            Source::Memory(MemoryField::Receive) => number(record.rmem_alloc_bytes),
            Source::Memory(MemoryField::ReceiveLimit) => number(record.rcvbuf_bytes),
            Source::Memory(MemoryField::Send) => number(record.wmem_queued_bytes),
            Source::Memory(MemoryField::SendLimit) => number(record.sndbuf_bytes),
            Source::Idle => {
                let ages_ms = [record.last_data_sent_ms, record.last_data_recv_ms];
                let youngest = ages_ms.into_iter().flatten().min().filter(|_| !is_listener);
                youngest.map(|ms| u64::from(ms) * 1_000)
            }
            Source::Sent => record.bytes_sent.or(record.bytes_acked),
            Source::Age => {
                let seen_ns = record.time_unix_ns?.saturating_sub(record.first_seen_unix_ns?);
                Some(record.seen_ns.unwrap_or(seen_ns) / 1_000)
            }
            Source::Dscp => {
                // An IPv6 socket with an IPv4 connection sends IPv4.
                let is_ipv4 = record.dst_address?.to_canonical().is_ipv4();
                let byte = if is_ipv4 { record.type_of_service } else { record.traffic_class };
                byte.map(|byte| u64::from(byte >> 2))
            }
        }
    }

    fn tcp_info(&self, field: &tcp_info::Field) -> Option<u64> {
        let (_, value) = self.compared.iter().find(|(known, _)| known.name == field.name)?;
        Some(match field.unit {
            Unit::Milliseconds => (*value)?.saturating_mul(1_000),
            Unit::BytesPerSecond => (*value)?.saturating_mul(8),
            Unit::None | Unit::Microseconds | Unit::Bytes | Unit::Segments => (*value)?,
        })
    }

    /// A text. `None` if it is unknown, `Some(None)` if there is none.
    fn text(&self, field: TextField) -> Option<Option<&str>> {
        let record = self.record;
        // A cgroup whose path is known and names no pod is in none.
        let of_cgroup = |part: Option<&'_ str>| part.is_some() || record.cgroup_path.is_some();
        let known = |text: Option<&'_ str>| text.is_some();
        match field {
            TextField::Process => Some(record.process_name).filter(|text| known(*text)),
            TextField::Netns => {
                let is_known = record.netns_name.is_some() || record.netns_inode.is_some();
                Some(record.netns_name).filter(|_| is_known)
            }
            TextField::Pod => Some(record.pod_uid).filter(|text| of_cgroup(*text)),
            TextField::Container => Some(record.container_id).filter(|text| of_cgroup(*text)),
            TextField::Unit => Some(record.systemd_unit).filter(|text| of_cgroup(*text)),
            TextField::CgroupPath => Some(record.cgroup_path).filter(|text| known(*text)),
            TextField::CongestionControl => {
                Some(record.congestion_algorithm).filter(|text| known(*text))
            }
            TextField::Limited => {
                let app_limited = record.delivery_rate_app_limited;
                let (rwnd, sndbuf) = (record.rwnd_limited_us, record.sndbuf_limited_us);
                Limit::of(record.busy_time_us, rwnd, sndbuf, app_limited)
                    .map(|limit| Some(limit.word()))
            }
        }
    }
}
