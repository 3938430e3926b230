//! The repaired link between two Weirs: the delay of UDP, the completeness of TCP, and a name for every datagram that is lost.
//!
//! - [`Near`] and [`Far`]: the two ends with their sessions, as the relay drives them.
//! - [`packet`]: the wire format. [`Key`]s, handshake, seals and replay windows decide who may send it.
//! - [`kept`]: the state of each end that outlives its process.
//! - [`Sender`]: decides which packets carry which datagrams, what to resend and what to give up, and accounts for all of it.
//! - [`Receiver`]: tracks what has arrived and what to report.
//!
//! Nothing here owns a socket, a clock or a thread: callers pass in the time and take packets out. The relay's target and
//! listener drive it, and so does a simulation of both ends.
//!
//! # How a loss is found
//! Every transmission has its own packet number, even when it resends a datagram. Reports list packet numbers: as soon as a later
//! packet has arrived, the missing ones before it are lost, and their content is resent under new numbers. So losing a resent
//! datagram is detected as fast as losing the original (RFC 8985 does it with times). When nothing later was sent, a timer
//! decides.
//!
//! # How both ends agree
//! Datagrams have sequence numbers without gaps. The sender's *floor* is the lowest one that is not settled: everything below it
//! has arrived or was given up. Each packet carries the floor, and each report says which floor the receiver has adopted and how
//! many datagrams below it were accepted. A datagram that was given up may have arrived anyway. Only that pair of numbers
//! decides, so both ends count the same whatever was lost between them.

#![forbid(unsafe_code)]

mod cookie;
mod far;
mod handshake;
pub mod kept;
mod key;
#[cfg(test)]
mod meeting;
mod near;
pub mod packet;
mod receiver;
mod replay;
mod seal;
mod sender;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod vector;

pub use far::{Far, FarCounts, Heard, Moment, Peer, PeerIntake, kept_bytes_max, tables_bytes_max};
pub use key::{KEY_BYTES, Key, KeyError, KeyId, Keys, is_name};
pub use near::{Identity, Near, NearCounts};
pub use receiver::{Accepted, Arrivals, Intake, Outcome, Receiver, ReceiverOptions, Room};
pub use sender::{Fates, GivenUp, Next, Sender, SenderOptions, Taken, Transmission, Way};

/// Datagrams and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Amount {
    pub datagrams: u64,
    pub bytes: u64,
}

impl Amount {
    /// One datagram of `bytes` bytes.
    pub fn one(bytes: u64) -> Amount {
        Amount { datagrams: 1, bytes }
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, more: Amount) {
        self.datagrams += more.datagrams;
        self.bytes += more.bytes;
    }
}

/// What both ends know about a run: how far it is settled, and how much of that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Sequence numbers below this one are settled.
    pub floor: u64,
    /// Datagrams below the floor that were accepted.
    pub accepted: Amount,
}

/// Random bytes from the operating system. Panics if there are none: without them, secrets would be the same every time.
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    assert!(filled.is_ok(), "the system has no random numbers");
    bytes
}

fn random_u32() -> u32 {
    u32::from_le_bytes(random_bytes())
}
