//! What was added to a connection's counters since its last record.
//!
//! A view in a store sees one insert at a time and cannot subtract a row from an hour ago, so the difference is a field. It is
//! taken against the last record, not the last poll: a connection that was unchanged or filtered out has no record. So the
//! counters of the first record plus all later differences equal the counters of the last record, whichever records there were in
//! between.

use crate::table::Entry;
use record::SocketRecord;
use wire::inet_diag::TcpInfo;

/// What the last record of a connection had, beyond the counters that the table keeps anyway.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Recorded {
    /// Time of that record, in nanoseconds since the host booted. 0 when no record has had counters.
    boot_ns: u64,
    busy_time_us: u64,
    rwnd_limited_us: u64,
    sndbuf_limited_us: u64,
}

impl Recorded {
    /// For a record with these counters, made now.
    pub(crate) fn now(info: &TcpInfo, boot_ns: u64) -> Recorded {
        Recorded {
            boot_ns,
            busy_time_us: info.busy_time_us().unwrap_or_default(),
            rwnd_limited_us: info.rwnd_limited_us().unwrap_or_default(),
            sndbuf_limited_us: info.sndbuf_limited_us().unwrap_or_default(),
        }
    }
}

/// The fields of the group `delta`. Unknown ones are absent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Delta {
    since_ns: Option<u64>,
    bytes_sent: Option<u64>,
    bytes_acked: Option<u64>,
    bytes_received: Option<u64>,
    bytes_retrans: Option<u64>,
    segs_out: Option<u32>,
    segs_in: Option<u32>,
    total_retrans: Option<u32>,
    busy_time_us: Option<u64>,
    rwnd_limited_us: Option<u64>,
    sndbuf_limited_us: Option<u64>,
}

impl Delta {
    /// The difference between these counters and those of the connection's last record. Nothing is known if there was none, or if
    /// a byte counter went back: the socket was disconnected and serves another connection (`connect` to `AF_UNSPEC`).
    pub(crate) fn of(entry: &Entry, info: &TcpInfo, boot_ns: u64) -> Delta {
        let (last, then) = (&entry.last, &entry.recorded);
        if then.boot_ns == 0 {
            return Delta::default();
        }

        let grown = |now: Option<u64>, then: u64| now.map(|now| now.checked_sub(then));
        let bytes = [
            grown(info.bytes_sent(), last.bytes_sent),
            grown(info.bytes_acked(), last.bytes_acked),
            grown(info.bytes_received(), last.bytes_received),
            grown(info.bytes_retrans(), last.bytes_retrans),
        ];
        if bytes.contains(&Some(None)) {
            return Delta::default();
        }

        let [bytes_sent, bytes_acked, bytes_received, bytes_retrans] = bytes.map(Option::flatten);
        // The kernel's segment counters are `u32` and wrap; its byte counters are not.
        let wrapped = |now: Option<u32>, then: u32| now.map(|now| now.wrapping_sub(then));
        Delta {
            since_ns: Some(boot_ns.saturating_sub(then.boot_ns)),
            bytes_sent,
            bytes_acked,
            bytes_received,
            bytes_retrans,
            segs_out: wrapped(info.segs_out(), last.segs_out),
            segs_in: wrapped(info.segs_in(), last.segs_in),
            total_retrans: wrapped(info.total_retrans_segments(), last.total_retrans),
            busy_time_us: grown(info.busy_time_us(), then.busy_time_us).flatten(),
            rwnd_limited_us: grown(info.rwnd_limited_us(), then.rwnd_limited_us).flatten(),
            sndbuf_limited_us: grown(info.sndbuf_limited_us(), then.sndbuf_limited_us).flatten(),
        }
    }

    /// Writes the differences into a record.
    pub(crate) fn fill(&self, record: &mut SocketRecord<'_>) {
        record.since_ns = self.since_ns;
        record.bytes_sent_delta = self.bytes_sent;
        record.bytes_acked_delta = self.bytes_acked;
        record.bytes_received_delta = self.bytes_received;
        record.bytes_retrans_delta = self.bytes_retrans;
        record.segs_out_delta = self.segs_out;
        record.segs_in_delta = self.segs_in;
        record.total_retrans_segments_delta = self.total_retrans;
        record.busy_time_us_delta = self.busy_time_us;
        record.rwnd_limited_us_delta = self.rwnd_limited_us;
        record.sndbuf_limited_us_delta = self.sndbuf_limited_us;
    }
}

/// Removes the differences from a record, for readers who do not get all records of a connection.
pub fn without_delta<'a>(record: &SocketRecord<'a>) -> SocketRecord<'a> {
    let mut record = *record;
    Delta::default().fill(&mut record);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::entry;
    use crate::table::{LastCounters, mix};

    /// `tcp_info` with these counters, by the offsets of `struct tcp_info` (include/uapi/linux/tcp.h).
    fn info(counters: &Counters) -> [u8; 280] {
        let mut bytes = [0; 280];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(100, &counters.total_retrans.to_ne_bytes());
        put(120, &counters.bytes_acked.to_ne_bytes());
        put(128, &counters.bytes_received.to_ne_bytes());
        put(136, &counters.segs_out.to_ne_bytes());
        put(140, &counters.segs_in.to_ne_bytes());
        put(168, &counters.busy_time_us.to_ne_bytes());
        put(200, &counters.bytes_sent.to_ne_bytes());
        put(208, &counters.bytes_retrans.to_ne_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> TcpInfo<'_> {
        TcpInfo::decode(bytes).unwrap()
    }

    #[derive(Clone, Copy, Default, Debug, PartialEq)]
    struct Counters {
        bytes_sent: u64,
        bytes_acked: u64,
        bytes_received: u64,
        bytes_retrans: u64,
        segs_out: u32,
        segs_in: u32,
        total_retrans: u32,
        busy_time_us: u64,
    }

    impl Counters {
        /// The counters a little later, by random amounts.
        fn later(self, random: u64) -> Counters {
            let some = |bits: u32| mix(random ^ u64::from(bits)) >> (64 - bits);
            Counters {
                bytes_sent: self.bytes_sent + some(40),
                bytes_acked: self.bytes_acked + some(39),
                bytes_received: self.bytes_received + some(41),
                bytes_retrans: self.bytes_retrans + some(20),
                segs_out: self.segs_out.wrapping_add(some(30) as u32),
                segs_in: self.segs_in.wrapping_add(some(31) as u32),
                total_retrans: self.total_retrans.wrapping_add(some(29) as u32),
                busy_time_us: self.busy_time_us + some(22),
            }
        }
    }

    fn note(entry: &mut Entry, now: &Counters, boot_ns: u64) {
        entry.last = LastCounters {
            bytes_sent: now.bytes_sent,
            bytes_acked: now.bytes_acked,
            bytes_received: now.bytes_received,
            bytes_retrans: now.bytes_retrans,
            segs_out: now.segs_out,
            segs_in: now.segs_in,
            total_retrans: now.total_retrans,
            ..LastCounters::default()
        };
        entry.recorded = Recorded::now(&read(&info(now)), boot_ns);
    }

    #[test]
    fn the_first_record_and_all_differences_add_up_to_the_last() {
        for run in 0..200 {
            let first = Counters::default().later(run);
            let (mut entry, mut now, mut boot_ns) = (entry(1, 1), first, 5);
            assert_eq!(
                Delta::of(&entry, &read(&info(&now)), boot_ns),
                Delta::default(),
                "the first"
            );
            note(&mut entry, &now, boot_ns);
            let (mut sum, mut since_ns) = (first, 0);
            for turn in 1..40 {
                now = now.later(run << 20 | turn);
                boot_ns += turn;
                let delta = Delta::of(&entry, &read(&info(&now)), boot_ns);
                note(&mut entry, &now, boot_ns);
                since_ns += delta.since_ns.unwrap();
                sum = Counters {
                    bytes_sent: sum.bytes_sent + delta.bytes_sent.unwrap(),
                    bytes_acked: sum.bytes_acked + delta.bytes_acked.unwrap(),
                    bytes_received: sum.bytes_received + delta.bytes_received.unwrap(),
                    bytes_retrans: sum.bytes_retrans + delta.bytes_retrans.unwrap(),
                    segs_out: sum.segs_out.wrapping_add(delta.segs_out.unwrap()),
                    segs_in: sum.segs_in.wrapping_add(delta.segs_in.unwrap()),
                    total_retrans: sum.total_retrans.wrapping_add(delta.total_retrans.unwrap()),
                    busy_time_us: sum.busy_time_us + delta.busy_time_us.unwrap(),
                };
            }
            assert_eq!((sum, since_ns), (now, boot_ns - 5));
        }
    }

    #[test]
    fn a_counter_of_segments_that_wraps_has_grown() {
        let mut entry = entry(1, 1);
        note(&mut entry, &Counters { segs_in: u32::MAX, ..Counters::default() }, 1);
        let now = info(&Counters { segs_in: 2, ..Counters::default() });
        let delta = Delta::of(&entry, &read(&now), 9);
        assert_eq!((delta.segs_in, delta.segs_out, delta.since_ns), (Some(3), Some(0), Some(8)));
    }

    #[test]
    fn counters_that_began_anew_have_no_difference() {
        let mut entry = entry(1, 1);
        note(&mut entry, &Counters { bytes_sent: 10, segs_out: 7, ..Counters::default() }, 1);
        let anew = Counters { bytes_sent: 9, segs_out: 1, ..Counters::default() };
        assert_eq!(Delta::of(&entry, &read(&info(&anew)), 9), Delta::default());
    }

    #[test]
    fn what_this_kernel_does_not_count_has_no_difference() {
        let mut entry = entry(1, 1);
        note(&mut entry, &Counters::default(), 1);
        // Linux 4.1 ends after bytes_received.
        let delta = Delta::of(&entry, &read(&[0; 136]), 9);
        assert_eq!((delta.bytes_acked, delta.bytes_sent, delta.segs_in), (Some(0), None, None));
        assert_eq!((delta.busy_time_us, delta.bytes_retrans), (None, None));
    }
}
