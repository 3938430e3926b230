//! `struct tcp_info`, of any length sent by a kernel.

use std::fmt;

use crate::DecodeError;
use crate::bytes::{u16_at, u32_at, u64_at};

/// Bytes of `struct tcp_info` in Linux 6.18 to 7.0, the longest known.
pub const TCP_INFO_BYTES: usize = 280;
/// Bytes of `struct tcp_info` in Linux 2.6, the shortest that is accepted.
pub const TCP_INFO_MIN_BYTES: usize = 104;

/// A socket's own TCP figures (`struct tcp_info`, `tcp_get_info` in net/ipv4/tcp.c).
///
/// Kernels only ever append to the structure. Decoding covers the prefix that the kernel sent: a field beyond it is `None`, never
/// 0. A field that arrived only in part is `None`.
///
/// Nothing is copied: this borrows the kernel's bytes, and reads a field when it is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo<'a> {
    /// At least [`TCP_INFO_MIN_BYTES`].
    payload: &'a [u8],
}

impl<'a> TcpInfo<'a> {
    /// Wraps the payload of `INET_DIAG_INFO`, or the result of `getsockopt(TCP_INFO)`.
    ///
    /// # Errors
    /// [`DecodeError::ShortAttribute`] with fewer than [`TCP_INFO_MIN_BYTES`].
    #[inline]
    pub const fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        if payload.len() < TCP_INFO_MIN_BYTES {
            return Err(DecodeError::ShortAttribute {
                kind: super::attribute::INFO,
                need: TCP_INFO_MIN_BYTES as u32,
                have: payload.len() as u32,
            });
        }
        Ok(Self { payload })
    }

    /// Bytes that the kernel sent. More than [`TCP_INFO_BYTES`] if it is newer than this program.
    #[inline]
    #[must_use]
    pub const fn length_bytes(&self) -> usize {
        self.payload.len()
    }

    /// The known part as the kernel sent it: at most [`TCP_INFO_BYTES`].
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.payload.get(..TCP_INFO_BYTES).unwrap_or(self.payload)
    }

    /// What the kernel sent beyond the known fields; empty for all kernels up to 7.0.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> &'a [u8] {
        self.payload.get(TCP_INFO_BYTES..).unwrap_or_default()
    }
}

impl fmt::Debug for TcpInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TcpInfo");
        for field in FIELDS {
            if let Some(value) = field.read(self) {
                shown.field(field.name, &value);
            }
        }
        shown.field("length_bytes", &self.payload.len()).finish()
    }
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A code, a bit set, an exponent, or a plain count described by its name.
    None,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Bytes.
    Bytes,
    /// TCP segments.
    Segments,
    /// Bytes per second.
    BytesPerSecond,
}

/// Position and description of a field of `struct tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the accessor: the kernel's without `tcpi_`, unit last.
    pub name: &'static str,
    /// Offset of its first byte; for a bit field, of the word that contains it.
    pub offset: usize,
    /// Bytes of the number, or of the word that contains it: 1, 2, 4 or 8.
    pub width: usize,
    /// Lowest bit and count of bits, for a bit field (in little-endian layout).
    pub bits: Option<(u32, u32)>,
    /// Minimum length of the structure from which the field is known to exist: the end of the number, or more for bits that used
    /// to be padding.
    pub needs: usize,
    /// Its unit.
    pub unit: Unit,
    /// The first Linux release that has it.
    pub since: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

impl Field {
    /// The field's value, or `None` if the kernel's structure ends before its last byte.
    #[must_use]
    pub fn read(&self, info: &TcpInfo<'_>) -> Option<u64> {
        let bytes = info.payload.get(..self.needs)?.get(self.offset..self.offset + self.width)?;
        let word = match bytes {
            [one] => u64::from(*one),
            [a, b] => u64::from(u16::from_ne_bytes([*a, *b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([*a, *b, *c, *d])),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        };

        Some(match self.bits {
            Some((shift, bits)) => part(word, self.width, shift, bits),
            None => word,
        })
    }

    /// Writes a value into the payload of an `INET_DIAG_INFO`; excess bits are cut off. Does nothing if `payload` ends before the
    /// field's last byte.
    pub fn write(&self, payload: &mut [u8], value: u64) {
        let Some(place) = payload.get_mut(self.offset..self.offset + self.width) else { return };

        let mut word = [0; 8];
        // The number's bytes within a native word: the first ones on a little-endian host, the last ones on a big-endian one.
        let at = if cfg!(target_endian = "little") { 0 } else { 8 - self.width };
        word[at..at + self.width].copy_from_slice(place);

        let (shift, bits) = self.bits.unwrap_or((0, self.width as u32 * 8));
        let shift = low_bit(self.width, shift, bits);
        let mask = (u64::MAX >> (64 - bits)) << shift;
        let word = u64::from_ne_bytes(word) & !mask | (value << shift) & mask;

        place.copy_from_slice(&word.to_ne_bytes()[at..at + self.width]);
    }
}

/// The lowest bit of a bit field within its word: compilers put the first one lowest on little-endian hosts, highest on
/// big-endian ones.
const fn low_bit(width: usize, shift: u32, bits: u32) -> u32 {
    if cfg!(target_endian = "little") { shift } else { width as u32 * 8 - shift - bits }
}

const fn part(word: u64, width: usize, shift: u32, bits: u32) -> u64 {
    (word >> low_bit(width, shift, bits)) & (u64::MAX >> (64 - bits))
}

/// Reads one number at a fixed offset.
macro_rules! number {
    ($bytes:expr, u8, $offset:literal) => {
        $bytes[$offset]
    };
    ($bytes:expr, u16, $offset:literal) => {
        u16_at::<$offset, _>($bytes)
    };
    ($bytes:expr, u32, $offset:literal) => {
        u32_at::<$offset, _>($bytes)
    };
    ($bytes:expr, u64, $offset:literal) => {
        u64_at::<$offset, _>($bytes)
    };
    ($bytes:expr, $type:ident, $offset:literal, $shift:literal, $bits:literal) => {
        part(number!($bytes, $type, $offset) as u64, size_of::<$type>(), $shift, $bits) as $type
    };
}

macro_rules! needs {
    ($type:ident, $offset:literal) => {
        $offset + size_of::<$type>()
    };
    ($type:ident, $offset:literal, $needs:literal) => {
        $needs
    };
}

macro_rules! bits {
    () => {
        None
    };
    ($shift:literal, $bits:literal) => {
        Some(($shift, $bits))
    };
}

/// Declares the accessors and [`FIELDS`] from one table.
macro_rules! fields {
    ($($name:ident: $type:ident $([$shift:literal, $bits:literal])? @ $offset:literal $(of $needs:literal)?, $unit:ident, $since:literal, $meaning:literal;)*) => {
        /// Every field of `struct tcp_info`, in the order of the structure.
        pub const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            offset: $offset,
            width: size_of::<$type>(),
            bits: bits!($($shift, $bits)?),
            needs: needs!($type, $offset $(, $needs)?),
            unit: Unit::$unit,
            since: $since,
            meaning: $meaning,
        },)*];

        impl TcpInfo<'_> {
            /// Calls `visit` with each field that the kernel sent and its value, in the order of [`FIELDS`]. For callers that
            /// treat all fields alike; faster than calling [`Field::read`] for each.
            #[inline]
            pub fn each(&self, mut visit: impl FnMut(&'static Field, u64)) {
                let mut fields = FIELDS.iter();
                // One comparison for all fields if the structure has at least the known length.
                if let Some(bytes) = self.payload.first_chunk::<TCP_INFO_BYTES>() {
                    $(if let Some(field) = fields.next() {
                        visit(field, number!(bytes, $type, $offset $(, $shift, $bits)?).into());
                    })*
                    return;
                }
                $(if let (Some(field), Some(value)) = (fields.next(), self.$name()) {
                    visit(field, value.into());
                })*
            }

            $(
                #[doc = $meaning]
                #[doc = concat!("\n\nSince Linux ", $since, "; `None` where the kernel's structure ends before it.")]
                #[inline]
                #[must_use]
                pub fn $name(&self) -> Option<$type> {
                    let bytes = self.payload.first_chunk::<{ needs!($type, $offset $(, $needs)?) }>()?;
                    Some(number!(bytes, $type, $offset $(, $shift, $bits)?))
                }
            )*
        }
    };
}

fields! {
    state: u8 @ 0, None, "2.4", "State of the connection, numbered as `State`.";
    ca_state: u8 @ 1, None, "2.4", "State of congestion control: 0 open, 1 disorder, 2 window reduced, 3 recovery, 4 loss.";
    retransmits: u8 @ 2, None, "2.4", "Retransmission timeouts in a row that are not answered yet.";
    probes: u8 @ 3, None, "2.4", "Keepalives or window probes that are not answered.";
    backoff: u8 @ 4, None, "2.4", "Doublings of the retransmission timeout.";
    options: u8 @ 5, None, "2.4", "Options in use: 1 timestamps, 2 SACK, 4 window scale, 8 ECN, 16 ECN seen, 32 SYN data, 64 timestamps in microseconds (6.7), 128 fast-open child (6.16).";
    snd_wscale: u8[0, 4] @ 6, None, "2.6", "Window scale that the peer announced, an exponent.";
    rcv_wscale: u8[4, 4] @ 6, None, "2.6", "Window scale that we announced, an exponent.";
    delivery_rate_app_limited: u8[0, 1] @ 7 of 168, None, "4.9", "1 if the application, not the network, limited the last delivery rate.";
    fastopen_client_fail: u8[1, 2] @ 7 of 232, None, "5.5", "Why fast open failed: 0 it did not, 1 no cookie, 2 data not acknowledged, 3 SYN sent again.";
    rto_us: u32 @ 8, Microseconds, "2.4", "Retransmission timeout.";
    ato_us: u32 @ 12, Microseconds, "2.4", "Delayed acknowledgement timeout.";
    snd_mss_bytes: u32 @ 16, Bytes, "2.4", "Largest segment that we send.";
    rcv_mss_bytes: u32 @ 20, Bytes, "2.4", "Estimate of the largest segment that the peer sends.";
    unacked_segments: u32 @ 24, Segments, "2.4", "Sent and not acknowledged. Of a listener: connections that wait to be accepted.";
    sacked_segments: u32 @ 28, Segments, "2.4", "Acknowledged selectively. Of a listener: the most connections that may wait.";
    lost_segments: u32 @ 32, Segments, "2.4", "Considered lost.";
    retrans_segments: u32 @ 36, Segments, "2.4", "Retransmitted and not acknowledged yet.";
    fackets_segments: u32 @ 40, Segments, "2.4", "Always 0 since Linux 4.15.";
    last_data_sent_ms: u32 @ 44, Milliseconds, "2.4", "Since data was sent last.";
    last_ack_sent_ms: u32 @ 48, Milliseconds, "2.4", "Always 0: the kernel does not remember it.";
    last_data_recv_ms: u32 @ 52, Milliseconds, "2.4", "Since data was received last.";
    last_ack_recv_ms: u32 @ 56, Milliseconds, "2.4", "Since an acknowledgement was received last.";
    pmtu_bytes: u32 @ 60, Bytes, "2.4", "Path MTU.";
    rcv_ssthresh_bytes: u32 @ 64, Bytes, "2.4", "Limit of the window that we announce.";
    rtt_us: u32 @ 68, Microseconds, "2.4", "Smoothed round-trip time.";
    rttvar_us: u32 @ 72, Microseconds, "2.4", "Mean deviation of the round-trip time.";
    snd_ssthresh_segments: u32 @ 76, Segments, "2.4", "Slow start threshold; 0x7fffffff is none.";
    snd_cwnd_segments: u32 @ 80, Segments, "2.4", "Congestion window.";
    advmss_bytes: u32 @ 84, Bytes, "2.4", "Largest segment that we announced.";
    reordering_segments: u32 @ 88, Segments, "2.4", "Reordering that is tolerated before loss is assumed.";
    rcv_rtt_us: u32 @ 92, Microseconds, "2.6", "Round-trip time as the receiving side estimates it.";
    rcv_space_bytes: u32 @ 96, Bytes, "2.6", "Receive buffer that tuning aims at.";
    total_retrans_segments: u32 @ 100, Segments, "2.6", "Retransmitted since the connection began; wraps.";
    pacing_rate_bytes_per_sec: u64 @ 104, BytesPerSecond, "3.15", "Rate at which segments are paced; all ones is unlimited.";
    max_pacing_rate_bytes_per_sec: u64 @ 112, BytesPerSecond, "3.15", "Limit of the pacing rate; all ones is unlimited.";
    bytes_acked: u64 @ 120, Bytes, "4.1", "Acknowledged since the connection began; FIN and the SYN of the side that connects count 1 each.";
    bytes_received: u64 @ 128, Bytes, "4.1", "Received in order since the connection began; FIN counts 1.";
    segs_out: u32 @ 136, Segments, "4.2", "Segments sent, those without data included; wraps.";
    segs_in: u32 @ 140, Segments, "4.2", "Segments received, those without data included; wraps.";
    notsent_bytes: u32 @ 144, Bytes, "4.6", "Written by the application and not sent yet.";
    min_rtt_us: u32 @ 148, Microseconds, "4.6", "Smallest round-trip time in the kernel's window; all ones is none yet.";
    data_segs_in: u32 @ 152, Segments, "4.6", "Segments with data received; wraps.";
    data_segs_out: u32 @ 156, Segments, "4.6", "Segments with data sent; wraps.";
    delivery_rate_bytes_per_sec: u64 @ 160, BytesPerSecond, "4.9", "Rate at which data was delivered lately.";
    busy_time_us: u64 @ 168, Microseconds, "4.10", "Time with data to send or not acknowledged.";
    rwnd_limited_us: u64 @ 176, Microseconds, "4.10", "Of the busy time, that spent waiting for the peer's window.";
    sndbuf_limited_us: u64 @ 184, Microseconds, "4.10", "Of the busy time, that spent waiting for room in the send buffer.";
    delivered_segments: u32 @ 192, Segments, "4.18", "Segments delivered, retransmitted ones included; wraps.";
    delivered_ce_segments: u32 @ 196, Segments, "4.18", "Of those delivered, the ones that were marked as having met congestion; wraps.";
    bytes_sent: u64 @ 200, Bytes, "4.19", "Data sent, retransmitted data included.";
    bytes_retrans: u64 @ 208, Bytes, "4.19", "Data retransmitted.";
    dsack_dups: u32 @ 216, Segments, "4.19", "Duplicates that the peer reported.";
    reord_seen: u32 @ 220, None, "4.19", "Times that reordering was seen.";
    rcv_ooopack: u32 @ 224, Segments, "5.4", "Segments received out of order.";
    snd_wnd_bytes: u32 @ 228, Bytes, "5.4", "Window that the peer announces, scaled.";
    rcv_wnd_bytes: u32 @ 232, Bytes, "6.2", "Window that we announce, scaled.";
    rehash: u32 @ 236, None, "6.2", "Times that the flow's hash was changed to get another path.";
    total_rto: u16 @ 240, None, "6.7", "Retransmission timeouts since the connection began.";
    total_rto_recoveries: u16 @ 242, None, "6.7", "Recoveries that a timeout began, one that goes on included.";
    total_rto_time_ms: u32 @ 244, Milliseconds, "6.7", "Time spent in recoveries that a timeout began, one that goes on included.";
    received_ce_segments: u32 @ 248, Segments, "6.18", "Segments received that were marked as having met congestion.";
    delivered_e1_bytes: u32 @ 252, Bytes, "6.18", "Delivered with mark ECT(1), as accurate ECN reports; wraps.";
    delivered_e0_bytes: u32 @ 256, Bytes, "6.18", "Delivered with mark ECT(0), as accurate ECN reports; wraps.";
    delivered_ce_bytes: u32 @ 260, Bytes, "6.18", "Delivered with mark CE, as accurate ECN reports; wraps.";
    received_e1_bytes: u32 @ 264, Bytes, "6.18", "Received with mark ECT(1); wraps.";
    received_e0_bytes: u32 @ 268, Bytes, "6.18", "Received with mark ECT(0); wraps.";
    received_ce_bytes: u32 @ 272, Bytes, "6.18", "Received with mark CE; wraps.";
    accecn_word: u32 @ 276, None, "6.18", "State of accurate ECN, in a layout that depends on the kernel: see `TcpInfo::accecn`.";
}
