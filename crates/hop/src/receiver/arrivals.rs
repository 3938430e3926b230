//! Which packets of a session have arrived, and when to report them.

use crate::packet::Report;
use crate::replay::{self, ReplayWindow};

/// Number of packets tracked, counted back from the highest.
const KEPT: u64 = replay::WINDOW;

/// Minimum number of packets that each report covers, counted back from the highest.
const SPOKEN_MIN: u64 = 64;

/// Number of consecutive reports that may be lost before a packet goes unreported.
const REPORTS_BACK: usize = 8;

/// Above the first share of lost packets, in parts per million, each report is sent twice; above the second, three times.
const ECHO_ABOVE: [u32; 2] = [20_000, 150_000];

/// Packets over which loss is measured: for the first measurement, and for the later ones.
const LOSS_PACKETS_FIRST: u64 = 32;
const LOSS_PACKETS: u64 = 128;

/// A report is repeated after this fraction of the interval between two reports. That is before the sender, which waits for one
/// interval and a round trip, declares its packet lost.
const ECHO_PART: u64 = 4;

/// Bounds for the time from a packet to its report, in nanoseconds. Callers derive the time from the round trip.
const INTERVAL_MIN_NS: u64 = 500_000;
const INTERVAL_MAX_NS: u64 = 10_000_000;

/// The packets of one session.
#[derive(Debug)]
pub struct Arrivals {
    largest: Option<u64>,
    largest_ns: u64,
    arrived: ReplayWindow,
    packets: u64,
    interval_ns: u64,
    /// When the first unreported packet arrived.
    unreported_since_ns: Option<u64>,
    is_asked: bool,
    last_report_ns: u64,
    echoes_left: u32,
    /// The highest packet numbers at the last reports.
    reported: [u64; REPORTS_BACK],
    received_bytes: u64,
    sent_bytes: u64,
    loss_from: u64,
    loss_packets: u64,
    /// Loss, smoothed over several measurements. `None` when too few packets have come.
    lost_per_million: Option<u32>,
}

impl Arrivals {
    /// A session in which nothing has arrived. `interval_ns` is how long a report may wait for more packets.
    pub fn new(interval_ns: u64, now_ns: u64) -> Arrivals {
        Arrivals {
            largest: None,
            largest_ns: now_ns,
            arrived: ReplayWindow::default(),
            packets: 0,
            interval_ns: interval_ns.clamp(INTERVAL_MIN_NS, INTERVAL_MAX_NS),
            unreported_since_ns: None,
            is_asked: false,
            last_report_ns: 0,
            echoes_left: 0,
            reported: [0; REPORTS_BACK],
            received_bytes: 0,
            sent_bytes: 0,
            loss_from: 0,
            loss_packets: 0,
            lost_per_million: None,
        }
    }

    /// Loss over the last few hundred packets.
    fn lost_per_million(&self) -> u32 {
        self.lost_per_million.unwrap_or(0)
    }

    /// Records an authentic packet of `bytes` that had not arrived before. Do not record a packet rejected for lack of room: the
    /// sender must resend it.
    pub fn note(&mut self, number: u64, bytes: usize, asks: bool, now_ns: u64) {
        match self.largest {
            Some(largest) if number <= largest => {
                if largest - number < KEPT {
                    self.arrived.note(number);
                }
            }
            _ => {
                self.arrived.note(number);
                (self.largest, self.largest_ns) = (Some(number), now_ns);
            }
        }
        self.packets += 1;
        self.received_bytes += bytes as u64;
        self.unreported_since_ns.get_or_insert(now_ns);
        self.is_asked |= asks;
        self.note_loss();
    }

    fn note_loss(&mut self) {
        let Some(largest) = self.largest else { return };
        let sent = (largest + 1).saturating_sub(self.loss_from);
        let is_first = self.lost_per_million.is_none();
        if sent >= if is_first { LOSS_PACKETS_FIRST } else { LOSS_PACKETS } {
            let lost = sent.saturating_sub(self.packets - self.loss_packets);
            // Packet numbers are the sender's to choose.
            let now = (u128::from(lost) * 1_000_000 / u128::from(sent)) as u32;
            let smoothed = self.lost_per_million.map_or(now, |before| before / 4 * 3 + now / 4);
            self.lost_per_million = Some(smoothed);
            (self.loss_from, self.loss_packets) = (largest + 1, self.packets);
        }
    }

    /// Whether a packet with this number may be new. Check before opening the packet.
    pub fn is_new(&self, number: u64) -> bool {
        self.arrived.is_new(number)
    }

    /// When the next report is due. `None` when there is nothing to report.
    pub fn due_ns(&self) -> Option<u64> {
        let interval_due_ns = self.last_report_ns + self.interval_ns;
        match self.unreported_since_ns {
            Some(since_ns) if self.is_asked => Some(since_ns),
            Some(_) => Some(interval_due_ns),
            None if self.echoes_left > 0 => {
                Some(self.last_report_ns + self.interval_ns / ECHO_PART)
            }
            None => None,
        }
    }

    /// The report that is due now, if any; its datagram counts come from `of_run`. Never sends back more bytes than came in.
    /// `bitmap` is a buffer for the report's bitmap.
    pub fn report<'a>(
        &mut self,
        now_ns: u64,
        of_run: &super::Receiver,
        bitmap: &'a mut Vec<u8>,
    ) -> Option<Report<'a>> {
        if self.due_ns().is_none_or(|due_ns| now_ns < due_ns) {
            return None;
        }
        let largest = self.largest?;

        // A repeat must not wait for further packets; a report with news starts its own repeats.
        let is_new = self.unreported_since_ns.is_some();
        let echoes = ECHO_ABOVE.iter().filter(|above| self.lost_per_million() > **above).count();
        let echoes_left = if is_new { echoes as u32 } else { self.echoes_left - 1 };
        let back = (largest - self.reported[0].min(largest)).clamp(SPOKEN_MIN, KEPT - 1);
        let bitmap_bytes = (back.min(largest) as usize).div_ceil(8);
        let bytes = Report::packet_bytes(bitmap_bytes) as u64;
        if self.sent_bytes + bytes > self.received_bytes {
            // The next packets will bring the bytes for it.
            (self.unreported_since_ns, self.is_asked, self.echoes_left) = (None, false, 0);
            return None;
        }

        self.fill_bitmap(largest, bitmap_bytes, bitmap);
        if is_new {
            self.reported.rotate_left(1);
            self.reported[REPORTS_BACK - 1] = largest;
        }
        self.sent_bytes += bytes;
        self.last_report_ns = now_ns;
        (self.unreported_since_ns, self.is_asked) = (None, false);
        self.echoes_left = echoes_left;

        let totals = of_run.totals();
        Some(Report {
            largest,
            delay_us: (now_ns.saturating_sub(self.largest_ns) / 1_000).min(u32::MAX.into()) as u32,
            interval_us: (self.interval_ns / 1_000) as u32,
            floor: totals.floor,
            accepted: totals.accepted.datagrams,
            accepted_bytes: totals.accepted.bytes,
            packets: self.packets,
            window: of_run.window(),
            bitmap,
        })
    }

    fn fill_bitmap(&self, largest: u64, bytes: usize, bitmap: &mut Vec<u8>) {
        bitmap.clear();
        for byte in 0..bytes as u64 {
            let bit = |bit: u64| {
                let back = byte * 8 + bit + 1;
                let is_there = back <= largest && back < KEPT && !self.is_new(largest - back);
                u8::from(is_there) << bit
            };
            let all = (0..8).map(bit).fold(0, |all, one| all | one);
            bitmap.push(all);
        }
    }
}
