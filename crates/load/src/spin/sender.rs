use super::{Error, HEADER_BYTES, Offer, PATTERN, Sizes};
use crate::Address;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use sys::Errno;
use sys::clock::monotonic_ns;
use sys::send::{BATCH, Message, send_messages};
use sys::socket::{self, SendOptions};

/// Send buffer size, in the kernel's accounting.
const SEND_BUFFER_BYTES: usize = 8 << 20;

/// The sockets of an offer.
pub(super) struct Sender {
    address: Address,
    sockets: Vec<OwnedFd>,
    /// Index of the socket whose turn it is.
    turn: usize,
    sizes: Sizes,
    run: u32,
    /// The datagrams of one burst, concatenated; except for the headers, [`PATTERN`] repeated.
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

        let payload_bytes = BATCH * offer.sizes.max_bytes();
        let payload = PATTERN[..256].iter().copied().cycle().take(payload_bytes).collect();
        Ok(Sender { address: offer.to.clone(), sockets, turn: 0, sizes: offer.sizes, run, payload })
    }

    /// Marks and sends `count` datagrams, at most [`BATCH`], numbered from `first`. Waits for room until `give_up_ns` or
    /// `stop`, and returns how many the socket accepted.
    pub(super) fn send(
        &mut self,
        first: u64,
        count: usize,
        now_ns: u64,
        give_up_ns: u64,
        stop: &AtomicBool,
    ) -> Result<usize, Error> {
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

        // Equal datagrams are sent as one UDP_SEGMENT message, which the kernel splits before it queues them at the
        // relay's socket (net/ipv4/udp.c, udp_queue_rcv_skb). The relay reads single datagrams as always, and the
        // generator, which would otherwise be the limit, needs a fraction of the time. A unix socket would send them as
        // one datagram.
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
        let in_message = if is_run { count } else { 1 };
        let taken = self.send_all(&messages[..count / in_message], give_up_ns, stop);

        // With varying lengths, the headers of the next burst are at other offsets.
        for range in &ranges[..count] {
            let header = range.start..range.start + HEADER_BYTES;
            self.payload[header].copy_from_slice(&PATTERN[range.start % 256..][..HEADER_BYTES]);
        }
        Ok(taken? * in_message)
    }

    fn send_all(
        &self,
        messages: &[Message<'_>],
        give_up_ns: u64,
        stop: &AtomicBool,
    ) -> Result<usize, Error> {
        let mut taken = 0;
        while taken < messages.len() {
            match send_messages(self.sockets[self.turn].as_fd(), &messages[taken..]) {
                Ok(count) => taken += count,
                // Nothing was listening a moment ago, or a buffer is full: retry the same datagram. If a relay accepts
                // nothing for the rest of the run, that is a result of this run, not a reason to end them all.
                Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::NOBUFS) => {
                    if stop.load(Ordering::Relaxed) || monotonic_ns() > give_up_ns {
                        break;
                    }
                }
                Err(errno) => {
                    let source = io::Error::from(errno);
                    return Err(Error::Send { address: self.address.clone(), source });
                }
            }
        }
        Ok(taken)
    }
}
