use super::{Error, HEADER_BYTES, Offer, Sizes};
use crate::Address;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use sys::Errno;
use sys::clock::monotonic_ns;
use sys::send::{BATCH, Message, send_messages};
use sys::socket::{self, SendOptions};

/// Room for what the kernel has not passed on; in its own accounting.
const SEND_BUFFER_BYTES: usize = 8 << 20;

/// A socket that takes nothing for this long will not.
const STUCK_NS: u64 = 5_000_000_000;

/// The sockets of an offer.
pub(super) struct Sender {
    address: Address,
    sockets: Vec<OwnedFd>,
    /// The socket whose turn it is.
    turn: usize,
    sizes: Sizes,
    run: u32,
    /// The datagrams of one burst, one behind the other.
    payload: Vec<u8>,
}

impl Sender {
    pub(super) fn open(offer: &Offer, run: u32) -> Result<Sender, Error> {
        let open = || match &offer.to {
            Address::Udp(remote) => {
                let send_buffer_bytes = Some(SEND_BUFFER_BYTES);
                socket::connect_udp(
                    *remote,
                    &SendOptions { send_buffer_bytes, ..SendOptions::default() },
                )
            }
            Address::Unix(path) => socket::connect_unix(path),
        };
        let sockets = (0..offer.flows.max(1)).map(|_| open()).collect::<io::Result<_>>();
        let sockets =
            sockets.map_err(|source| Error::Open { address: offer.to.clone(), source })?;

        let payload = (0..BATCH * offer.sizes.max_bytes()).map(|n| n as u8).collect();
        Ok(Sender { address: offer.to.clone(), sockets, turn: 0, sizes: offer.sizes, run, payload })
    }

    /// Marks and sends `count` datagrams, at most [`BATCH`], the first of them with this number.
    pub(super) fn send(
        &mut self,
        first: u64,
        count: usize,
        now_ns: u64,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let mut ranges: [Range<usize>; BATCH] = std::array::from_fn(|_| 0..0);
        let mut start = 0;
        for (range, sequence) in ranges[..count].iter_mut().zip(first..) {
            let end = start + self.sizes.datagram_bytes(sequence);
            let datagram = &mut self.payload[start..end];
            datagram[..4].copy_from_slice(&self.run.to_le_bytes());
            datagram[4..12].copy_from_slice(&sequence.to_le_bytes());
            datagram[12..HEADER_BYTES].copy_from_slice(&now_ns.to_le_bytes());
            *range = start..end;
            start = end;
        }

        // Equal datagrams go as one UDP_SEGMENT message, which the kernel takes apart before it queues them at the relay's
        // socket (net/ipv4/udp.c, udp_queue_rcv_skb). The relay reads single datagrams as ever, and the generator, which
        // would be the limit otherwise, needs a fraction of the time. A unix socket would take them for one datagram.
        let is_run =
            matches!((self.sizes, &self.address), (Sizes::Equal(_), Address::Udp(_))) && count > 1;
        let messages: [Message<'_>; BATCH] = std::array::from_fn(|n| {
            if is_run && n == 0 {
                Message::run(&self.payload[..start], ranges[0].len() as u16)
            } else {
                Message::single(&self.payload[ranges[n].clone()])
            }
        });

        self.turn = (self.turn + 1) % self.sockets.len();
        self.send_all(&messages[..if is_run { 1 } else { count }], now_ns, stop)
    }

    fn send_all(
        &self,
        mut rest: &[Message<'_>],
        now_ns: u64,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        while !rest.is_empty() {
            let errno = match send_messages(self.sockets[self.turn].as_fd(), rest) {
                Ok(taken) => {
                    rest = &rest[taken..];
                    continue;
                }
                Err(errno) => errno,
            };

            // Nothing listened there a moment ago, or a buffer is full: the same datagram goes again.
            let passes = matches!(errno, Errno::CONNREFUSED | Errno::AGAIN | Errno::NOBUFS);
            let is_stuck = stop.load(Ordering::Relaxed) || monotonic_ns() - now_ns > STUCK_NS;
            if !passes || is_stuck {
                let source = io::Error::from(errno);
                return Err(Error::Send { address: self.address.clone(), source });
            }
        }
        Ok(())
    }
}
