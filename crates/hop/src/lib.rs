//! The repaired link between two Weirs: datagrams at UDP's delay, complete as TCP's, and each one that is missing has a name.
//!
//! - [`Near`] and [`Far`]: the two ends with their sessions, as the relay drives them.
//! - [`packet`]: what is on the wire. [`Key`]s, handshake, seals, replays: who may say it.
//! - [`kept`]: what outlives the process of either end.
//! - [`Sender`]: which datagrams are in which packets, what is sent again, what is given up, and what became of it all.
//! - [`Receiver`]: what has arrived, and what is reported of it.
//!
//! Nothing here has a socket, a clock or a thread: time is handed in, and packets are taken out. The relay's target and
//! listener drive it, and so does a simulation of both ends.
//!
//! # How a loss is found
//! Every transmission has a packet number of its own, also that of a datagram which was sent before. Reports speak of packet
//! numbers: as soon as one arrives that was sent later, what is missing before it is lost, and goes again under a new number. So a
//! loss of what was sent again is found as fast as the first one (RFC 8985 does it with times). Where nothing later was sent, a
//! timer decides.
//!
//! # How both ends agree
//! Datagrams have sequence numbers without gaps. The sender's *floor* is the lowest one that is not settled: below it everything
//! has arrived or is given up. Each packet carries it, and each report says which floor the receiver has taken over and how many
//! datagrams below it were accepted. What was given up may have arrived all the same: only that pair decides, so that both ends
//! count the same whatever was lost between them.

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

pub use far::{Far, FarCounts, Heard, Peer, PeerIntake};
pub use key::{KEY_BYTES, Key, KeyError, KeyId, Keys, is_name};
pub use near::{Identity, Near, NearCounts};
pub use receiver::{Accepted, Arrivals, Intake, Outcome, Receiver, ReceiverOptions};
pub use sender::{Fates, GivenUp, Next, Sender, SenderOptions, Taken, Transmission, Way};

/// Datagrams and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Amount {
    pub datagrams: u64,
    pub bytes: u64,
}

impl Amount {
    /// One datagram of so many bytes.
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

/// What both ends know of a run: how far it is settled, and what of that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Sequence numbers below it are settled.
    pub floor: u64,
    /// Datagrams below it that were accepted.
    pub accepted: Amount,
}

/// Random bytes of the system's. Without any, what is to be unguessable would be the same each time, so that the process ends.
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    assert!(filled.is_ok(), "the system has no random numbers");
    bytes
}

fn random_u32() -> u32 {
    u32::from_le_bytes(random_bytes())
}
