//! A target that is another Weir.

use crate::address::HostPort;
use crate::form::{Bool, Span, parsed, path, size, text, whole};
use crate::keys::keys;
use crate::sink::secret_path;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use text::units::{UnitError, display_bit_rate, parse_bit_rate};

keys! {
    /// What a target that is another Weir has.
    pub struct WeirTarget in "listener.target" of "targets that are another Weir" given {
        /// Where it listens.
        addr: HostPort
    } {
        /// File with the key that the other Weir has among its `keys`: one line, as `weir hop key NAME` prints it.
        key => key_file: PathBuf = path("path", secret_path),
            required("write key = \"/etc/weir/hop.key\"; `weir hop key NAME` prints what stands in it");
        /// The most that leaves, with all headers and what is sent again. What comes faster waits, and expires. There is no
        /// other brake but the budget: name a rate that the way has.
        bandwidth => rate: BitRate = text("bit rate, such as `100Mbit/s`", parsed::<BitRate>),
            default(BitRate(10_000_000));
        /// How long after it was received here a datagram is worth sending. Then it counts as `expired`. The ring must hold
        /// what comes in that time.
        deadline => deadline: Duration =
            Span(Duration::from_millis(10), Duration::from_secs(3_600)), default(Duration::from_secs(5));
        /// Of 100 bytes that are sent for the first time, so many may be sent again. 50 are enough where 30 in 100 packets
        /// are lost.
        repair_budget => repair_percent: u32 = whole(0, 400), default(50);
        /// Largest packet, without the headers of IP and UDP. The default passes everywhere; a longer datagram goes in several.
        packet_size => packet_bytes: usize = size(576, 65_507), default(1_232);
        /// Most datagrams, or parts of them, that were sent and are not settled: the rate in packets times deadline and round
        /// trip. The other Weir's `window` bounds it too.
        window => window: u32 = whole(128, 1 << 22), default(65_536);
        /// Whether what was sent and not reported is sent again to a Weir that has lost its memory, which may have had it. If not,
        /// it counts as uncertain.
        redeliver => redelivers: bool = Bool, default(true);
        /// File that is kept so that what was on its way when this process is killed has a name when it starts again. For this target
        /// alone, best on a file system in memory. It does not outlive a restart of the machine.
        state => state: Option<PathBuf> = path("path", secret_path), unset("none");
        /// How often a host name is resolved again. The link goes on at a changed address.
        resolve_interval => resolve_interval: Duration =
            Span(Duration::from_secs(1), Duration::from_secs(86_400)), default(Duration::from_secs(30));
    }
}

/// Bits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitRate(pub u64);

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<BitRate, String> {
        match parse_bit_rate(text).map_err(|error: UnitError| error.to_string())? {
            bits @ 8_000.. => Ok(BitRate(bits)),
            _ => Err("it is too little. Fix: write 8kbit/s or more".to_owned()),
        }
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&display_bit_rate(self.0))
    }
}

impl WeirTarget {
    /// The limits for sending and resending.
    pub fn sender_options(&self) -> hop::SenderOptions {
        let around =
            hop::packet::HEADER_BYTES + hop::packet::DATA_HEAD_BYTES_MAX + hop::packet::TAG_BYTES;
        hop::SenderOptions {
            rate_bytes_per_sec: self.rate.0 / 8,
            repair_percent: self.repair_percent,
            part_bytes: self.packet_bytes.saturating_sub(around).max(64) as u16,
            window: self.window,
            redelivers: self.redelivers,
        }
    }
}
