//! Attribute types of a reply (`enum` in `include/uapi/linux/inet_diag.h`) and the structures in them.

use crate::DecodeError;
use crate::bytes::{count, u16_at, u32_at};

/// `INET_DIAG_MEMINFO`: [`MemInfo`].
pub const MEMINFO: u16 = 1;
/// `INET_DIAG_INFO`: [`TcpInfo`](super::TcpInfo).
pub const INFO: u16 = 2;
/// `INET_DIAG_VEGASINFO`: [`Vegas`].
pub const VEGASINFO: u16 = 3;
/// `INET_DIAG_CONG`: name of the congestion control.
pub const CONG: u16 = 4;
/// `INET_DIAG_TOS`.
pub const TOS: u16 = 5;
/// `INET_DIAG_TCLASS`.
pub const TCLASS: u16 = 6;
/// `INET_DIAG_SKMEMINFO`: [`Memory`].
pub const SKMEMINFO: u16 = 7;
/// `INET_DIAG_SHUTDOWN`.
pub const SHUTDOWN: u16 = 8;
/// `INET_DIAG_DCTCPINFO`: [`Dctcp`].
pub const DCTCPINFO: u16 = 9;
/// `INET_DIAG_PROTOCOL`.
pub const PROTOCOL: u16 = 10;
/// `INET_DIAG_SKV6ONLY`.
pub const SKV6ONLY: u16 = 11;
/// `INET_DIAG_LOCALS`: addresses of an SCTP association; kept raw.
pub const LOCALS: u16 = 12;
/// `INET_DIAG_PEERS`: addresses of an SCTP association; kept raw.
pub const PEERS: u16 = 13;
/// `INET_DIAG_PAD`: filler that aligns the next attribute to 8.
pub const PAD: u16 = 14;
/// `INET_DIAG_MARK`.
pub const MARK: u16 = 15;
/// `INET_DIAG_BBRINFO`: [`Bbr`].
pub const BBRINFO: u16 = 16;
/// `INET_DIAG_CLASS_ID`.
pub const CLASS_ID: u16 = 17;
/// `INET_DIAG_MD5SIG`: keys; only their presence is reported.
pub const MD5SIG: u16 = 18;
/// `INET_DIAG_ULP_INFO`: [`Ulp`](super::Ulp).
pub const ULP_INFO: u16 = 19;
/// `INET_DIAG_SK_BPF_STORAGES`: values that BPF programs store with the socket; kept raw.
pub const SK_BPF_STORAGES: u16 = 20;
/// `INET_DIAG_CGROUP_ID`.
pub const CGROUP_ID: u16 = 21;
/// `INET_DIAG_SOCKOPT`: [`SocketOptions`].
pub const SOCKOPT: u16 = 22;

/// The first `N` bytes of an attribute that holds a structure of at least `N` bytes; kernels append to structures.
#[inline]
pub(super) fn prefix<const N: usize>(kind: u16, payload: &[u8]) -> Result<&[u8; N], DecodeError> {
    payload.first_chunk().ok_or(DecodeError::ShortAttribute {
        kind,
        need: count(N),
        have: count(payload.len()),
    })
}

/// Declares a structure of `u32` numbers, with its decoder and encoder.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident = $kind:ident, $size:literal; $($(#[$field_doc:meta])* $field:ident @ $offset:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u32,)*
        }

        impl $name {
            #[inline]
            pub(super) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
                let bytes = prefix::<$size>($kind, payload)?;
                Ok(Self { $($field: u32_at::<$offset, $size>(bytes),)* })
            }

            pub(super) fn encode(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $(bytes[$offset..$offset + 4].copy_from_slice(&self.$field.to_ne_bytes());)*
                bytes
            }
        }
    };
}

/// Socket memory (`SK_MEMINFO_…`, `sk_get_meminfo` in net/core/sock.c). In bytes, except `drops`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Receive queue with the kernel's overhead.
    pub rmem_alloc_bytes: u32,
    /// Limit of the receive queue.
    pub rcvbuf_bytes: u32,
    /// Passed to the device and not sent yet, with overhead.
    pub wmem_alloc_bytes: u32,
    /// Limit of the send queue.
    pub sndbuf_bytes: u32,
    /// Reserved in advance for later use.
    pub fwd_alloc_bytes: u32,
    /// Send queue with overhead.
    pub wmem_queued_bytes: u32,
    /// Options, filters and the like.
    pub optmem_bytes: u32,
    /// Received while the application held the socket lock, not in the queue yet.
    pub backlog_bytes: u32,
    /// Packets dropped at this socket, a count; `None` from kernels before 4.7, which do not send it.
    pub drops: Option<u32>,
}

impl Memory {
    /// Bytes without `drops`.
    const OLD_BYTES: usize = 32;

    #[inline]
    pub(super) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        const SIZE: usize = Memory::OLD_BYTES;
        let bytes = prefix::<SIZE>(SKMEMINFO, payload)?;
        Ok(Self {
            rmem_alloc_bytes: u32_at::<0, SIZE>(bytes),
            rcvbuf_bytes: u32_at::<4, SIZE>(bytes),
            wmem_alloc_bytes: u32_at::<8, SIZE>(bytes),
            sndbuf_bytes: u32_at::<12, SIZE>(bytes),
            fwd_alloc_bytes: u32_at::<16, SIZE>(bytes),
            wmem_queued_bytes: u32_at::<20, SIZE>(bytes),
            optmem_bytes: u32_at::<24, SIZE>(bytes),
            backlog_bytes: u32_at::<28, SIZE>(bytes),
            drops: payload.first_chunk::<36>().map(u32_at::<32, 36>),
        })
    }

    /// The kernel's representation, and how many of its bytes are in use.
    pub(super) fn encode(&self) -> ([u8; 36], usize) {
        let words = [
            self.rmem_alloc_bytes,
            self.rcvbuf_bytes,
            self.wmem_alloc_bytes,
            self.sndbuf_bytes,
            self.fwd_alloc_bytes,
            self.wmem_queued_bytes,
            self.optmem_bytes,
            self.backlog_bytes,
            self.drops.unwrap_or(0),
        ];

        let mut bytes = [0; 36];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }

        (bytes, if self.drops.is_some() { 36 } else { Self::OLD_BYTES })
    }
}

words! {
    /// The older, smaller form of [`Memory`] (`struct inet_diag_meminfo`), in bytes.
    MemInfo = MEMINFO, 16;
    /// `idiag_rmem`: receive queue.
    rmem_bytes @ 0;
    /// `idiag_wmem`: send queue.
    wmem_bytes @ 4;
    /// `idiag_fmem`: accounted in advance.
    fmem_bytes @ 8;
    /// `idiag_tmem`: handed to the device.
    tmem_bytes @ 12;
}

words! {
    /// What vegas, yeah, illinois, lp, nv and westwood say of themselves (`struct tcpvegas_info`). They fill it each in its own
    /// way: see `tcp_vegas_get_info` in net/ipv4/tcp_vegas.c and its likes.
    Vegas = VEGASINFO, 16;
    /// 1 while the algorithm steers.
    enabled @ 0;
    /// Round trips measured in this window.
    rtt_count @ 4;
    /// A round-trip time in microseconds: of vegas and yeah the smallest ever, 0x7fffffff if none; of nv and westwood the last
    /// one; of illinois and lp the mean of this round, 0 if none.
    rtt_us @ 8;
    /// Smallest round-trip time, in microseconds: of vegas and yeah in this round, 0x7fffffff if none; of the others the smallest
    /// seen.
    min_rtt_us @ 12;
}

/// State of DCTCP (`struct tcp_dctcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dctcp {
    /// 1 while the algorithm is active, 0 if it fell back to Reno: then everything else is 0.
    pub enabled: u16,
    /// 1 if the last segment carried a congestion mark.
    pub ce_state: u16,
    /// Estimated share of marked bytes; 1024 means all.
    pub alpha: u32,
    /// Marked bytes acknowledged in this window.
    pub ab_ecn_bytes: u32,
    /// Bytes acknowledged in this window.
    pub ab_tot_bytes: u32,
}

impl Dctcp {
    pub(super) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let bytes = prefix::<16>(DCTCPINFO, payload)?;
        Ok(Self {
            enabled: u16_at::<0, 16>(bytes),
            ce_state: u16_at::<2, 16>(bytes),
            alpha: u32_at::<4, 16>(bytes),
            ab_ecn_bytes: u32_at::<8, 16>(bytes),
            ab_tot_bytes: u32_at::<12, 16>(bytes),
        })
    }

    pub(super) fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0..2].copy_from_slice(&self.enabled.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.ce_state.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.alpha.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.ab_ecn_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.ab_tot_bytes.to_ne_bytes());
        bytes
    }
}

/// State of BBR (`struct tcp_bbr_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bbr<'a> {
    /// Estimated bandwidth, in bytes per second.
    pub bandwidth_bytes_per_sec: u64,
    /// Smallest round-trip time in the window, in microseconds.
    pub min_rtt_us: u32,
    /// Gain of the pacing rate; 256 is 1.
    pub pacing_gain: u32,
    /// Gain of the congestion window; 256 is 1.
    pub cwnd_gain: u32,
    /// Bytes after the 20 above, as sent by kernels with BBR version 2 or 3 (32 bytes); empty otherwise.
    pub tail: &'a [u8],
}

/// Bytes of [`Bbr`] without its tail.
const BBR_BYTES: usize = 20;

impl<'a> Bbr<'a> {
    pub(super) fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let bytes = prefix::<BBR_BYTES>(BBRINFO, payload)?;
        let word = u32_at::<0, BBR_BYTES>;
        Ok(Self {
            // Two words, the low one first (`bbr_bw_lo`, `bbr_bw_hi`).
            bandwidth_bytes_per_sec: u64::from(word(bytes))
                | u64::from(u32_at::<4, BBR_BYTES>(bytes)) << 32,
            min_rtt_us: u32_at::<8, BBR_BYTES>(bytes),
            pacing_gain: u32_at::<12, BBR_BYTES>(bytes),
            cwnd_gain: u32_at::<16, BBR_BYTES>(bytes),
            tail: payload.get(BBR_BYTES..).unwrap_or_default(),
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BBR_BYTES + self.tail.len());
        bytes.extend_from_slice(&(self.bandwidth_bytes_per_sec as u32).to_ne_bytes());
        bytes.extend_from_slice(&((self.bandwidth_bytes_per_sec >> 32) as u32).to_ne_bytes());
        bytes.extend_from_slice(&self.min_rtt_us.to_ne_bytes());
        bytes.extend_from_slice(&self.pacing_gain.to_ne_bytes());
        bytes.extend_from_slice(&self.cwnd_gain.to_ne_bytes());
        bytes.extend_from_slice(self.tail);
        bytes
    }
}

/// Socket options (`struct inet_diag_sockopt`), as a bit set independent of the host's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions(u16);

impl SocketOptions {
    /// Bits by number, under the kernel's names. Bits 11 to 15 are unused.
    pub const NAMES: &[&str] = &[
        "recverr",
        "is_icsk",
        "freebind",
        "hdrincl",
        "mc_loop",
        "transparent",
        "mc_all",
        "nodefrag",
        "bind_address_no_port",
        "recverr_rfc4884",
        "defer_connect",
    ];

    /// The set of these bits, bit N for `NAMES[N]`.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Bit N for `NAMES[N]`; unnamed bits are kept.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether the option of this name is on; `false` for a name that is not in [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        self.names().any(|set| set == name)
    }

    /// The names of the options that are on.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 == 1)
            .map(|(_, name)| *name)
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let [low, high] = prefix::<2>(SOCKOPT, payload)?.map(first_bit_lowest);
        Ok(Self(u16::from_le_bytes([low, high])))
    }

    pub(super) fn encode(self) -> [u8; 2] {
        self.0.to_le_bytes().map(first_bit_lowest)
    }
}

/// Bit fields of a byte start at the lowest bit on little-endian hosts, at the highest on big-endian ones.
fn first_bit_lowest(byte: u8) -> u8 {
    if cfg!(target_endian = "little") { byte } else { byte.reverse_bits() }
}
