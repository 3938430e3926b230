use super::options::SIZE_MAX_BYTES;
use super::{Error, ErrorCounts, Options, Segmentation};
use crate::check::{self, Check, Kind};
use crate::{Address, Payload};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::Errno;
use sys::poll::{Interest, PollSet};
use sys::send::{self, Message};
use sys::socket::{self, SendOptions};

/// Attempts to send a datagram when the error may be about something else on the socket.
const ATTEMPTS_MAX: u32 = 8;

/// Longest wait for room before checking [`Halt`] again.
const ROOM_WAIT: Duration = Duration::from_millis(20);

/// When to stop sending, even if something is left.
pub(super) struct Halt<'a> {
    pub(super) stop: &'a AtomicBool,
    /// On the monotonic clock.
    pub(super) at_ns: Option<u64>,
}

impl Halt<'_> {
    pub(super) fn is_now(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.at_ns.is_some_and(|at_ns| sys::clock::monotonic_ns() >= at_ns)
    }
}

/// One stream: a source socket, its target, and what was sent on it.
pub(super) struct Flow {
    socket: OwnedFd,
    address: Address,
    pub(super) target_idx: usize,
    payload: Payload,
    run: u64,
    sender: u16,
    flow: u16,
    streams: u16,
    /// Data datagrams accepted by the kernel; also the next sequence number.
    pub(super) sent_datagrams: u64,
    pub(super) sent_bytes: u64,
    pub(super) heartbeats: u64,
    pub(super) heartbeat_bytes: u64,
    pub(super) errors: ErrorCounts,
    pub(super) failed: ErrorCounts,
    segmentation: Segmentation,
}

/// How many slots of a batch are finished.
pub(super) struct Outcome {
    pub(super) sent: usize,
    /// Slots after the sent ones that were abandoned.
    pub(super) gave_up: usize,
}

impl Flow {
    pub(super) fn open(
        options: &Options,
        run: u64,
        sender: u16,
        target_idx: usize,
        flow_idx: usize,
    ) -> Result<Flow, Error> {
        let address = options.targets[target_idx].clone();
        let socket = open_socket(&address, options)
            .map_err(|source| Error::Open { address: address.clone(), source })?;

        Ok(Flow {
            socket,
            address,
            target_idx,
            payload: options.payload,
            run,
            sender,
            // `Options::validate` has made sure that the number of all flows fits in 16 bits.
            flow: (target_idx * options.flows + flow_idx) as u16,
            streams: options.flows as u16,
            sent_datagrams: 0,
            sent_bytes: 0,
            heartbeats: 0,
            heartbeat_bytes: 0,
            errors: ErrorCounts::default(),
            failed: ErrorCounts::default(),
            // A unix socket ignores the control message and would send the whole run as one datagram.
            segmentation: match options.targets[target_idx] {
                Address::Udp(_) => options.segmentation_possible(),
                Address::Unix(_) => Segmentation::Off,
            },
        })
    }

    fn check(&self, kind: Kind, sequence: u64) -> Check {
        let (run, sender, flow, streams) = (self.run, self.sender, self.flow, self.streams);
        let stamp_ns = sys::clock::realtime_ns();
        // 2^32 heartbeats never occur in practice; if they did, the receiver's count of missing heartbeats would be wrong.
        let heartbeats = self.heartbeats as u32;
        Check { run, sender, flow, streams, kind, sequence, stamp_ns, heartbeats }
    }

    /// Marks and sends one datagram for each size; they are `stride` bytes apart in `buffer`.
    pub(super) fn send_data(
        &mut self,
        sizes: &[usize],
        stride: usize,
        buffer: &mut [u8],
        halt: &Halt<'_>,
    ) -> Outcome {
        let mut check = self.check(Kind::Data, self.sent_datagrams);
        for (datagram, size) in buffer.chunks_exact_mut(stride).zip(sizes) {
            check::encode(self.payload, &check, &mut datagram[..*size]);
            check.sequence += 1;
        }

        let mut messages = [Message::single(b""); send::BATCH];
        let count = match self.segmentation {
            Segmentation::Gso if sizes.len() > 1 => {
                runs(&mut messages, &buffer[..stride * sizes.len()], stride)
            }
            _ => {
                let datagrams = buffer.chunks_exact(stride).zip(sizes);
                for (message, (datagram, size)) in messages.iter_mut().zip(datagrams) {
                    *message = Message::single(&datagram[..*size]);
                }
                sizes.len().min(send::BATCH)
            }
        };

        let (taken, refused) = self.send_all(&messages[..count], halt);
        let sent: usize = messages[..taken].iter().map(|m| m.datagrams as usize).sum();
        self.sent_datagrams += sent as u64;
        self.sent_bytes += messages[..taken].iter().map(|m| m.bytes.len() as u64).sum::<u64>();

        let gave_up = match refused {
            None => 0,
            Some(_) if messages[taken].datagrams > 1 => {
                // The device or the path may not support segmentation: send single datagrams from now on, starting with these.
                self.segmentation = Segmentation::Off;
                0
            }
            Some(errno) => {
                self.failed.add(errno);
                1
            }
        };
        Outcome { sent, gave_up }
    }

    /// Sends a line as it is. Returns whether the kernel took it; it is not asked about one that no datagram holds.
    pub(super) fn send_line(&mut self, line: &[u8], halt: &Halt<'_>) -> bool {
        if line.len() > SIZE_MAX_BYTES {
            self.failed.add(Errno::MSGSIZE);
            return false;
        }
        let (sent, refused) = self.send_all(&[Message::single(line)], halt);
        if let Some(errno) = refused {
            self.failed.add(errno);
        }
        self.sent_datagrams += sent as u64;
        self.sent_bytes += (sent * line.len()) as u64;
        sent > 0
    }

    /// Sends messages in order; stops at one that the kernel refuses permanently, or when `halt` says so. Returns how many were
    /// sent, and why the next one was refused.
    fn send_all(&mut self, messages: &[Message<'_>], halt: &Halt<'_>) -> (usize, Option<Errno>) {
        let mut sent = 0;
        let mut attempts = 0;
        while sent < messages.len() {
            let errno = match send::send_messages(self.socket.as_fd(), &messages[sent..]) {
                Ok(taken) => {
                    sent += taken;
                    attempts = 0;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(errno) => errno,
            };

            self.errors.add(errno);
            if halt.is_now() {
                break;
            }

            match errno {
                Errno::AGAIN => self.wait_for_room(),
                // There is no event to wait for when the device's queue is full.
                Errno::NOBUFS => std::thread::sleep(Duration::from_millis(1)),
                // These report the fate of an earlier datagram, or that the peer is gone: this datagram was not sent.
                Errno::CONNREFUSED
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::NOTCONN
                | Errno::PIPE
                    if attempts < ATTEMPTS_MAX =>
                {
                    attempts += 1;
                    self.recover();
                }
                _ => return (sent, Some(errno)),
            }
        }
        (sent, None)
    }

    fn wait_for_room(&self) {
        let mut set = PollSet::default();
        set.add(self.socket.as_fd(), Interest::Writable);
        // An error of poll(2) means a signal: the caller checks `Halt` and tries again.
        let _ = set.wait(ROOM_WAIT);
    }

    /// Empties the error queue of a UDP socket; reopens a unix socket, because its receiver may have been replaced.
    fn recover(&mut self) {
        match &self.address {
            Address::Udp(_) => while sys::errqueue::take(self.socket.as_fd()).is_some() {},
            Address::Unix(path) => {
                if let Ok(socket) = socket::connect_unix(path) {
                    self.socket = socket;
                }
            }
        }
    }

    /// Reports how many data datagrams were sent so far, in a heartbeat that `further` more will follow at the end.
    pub(super) fn send_heartbeat(&mut self, kind: Kind, further: u32, halt: &Halt<'_>) {
        let mut datagram = [0; HEARTBEAT_BYTES_MAX];
        let datagram = &mut datagram[..self.payload.size_min_bytes()];
        let mut check = self.check(kind, self.sent_datagrams);
        check.heartbeats = check.heartbeats.wrapping_add(1 + further);
        check::encode(self.payload, &check, datagram);
        // A refused heartbeat is counted as an error; the next one gets its number.
        let (sent, _) = self.send_all(&[Message::single(datagram)], halt);
        self.heartbeats += sent as u64;
        self.heartbeat_bytes += (sent * datagram.len()) as u64;
    }
}

/// No payload needs more for its check data; a test in [`check`] verifies the sizes.
const HEARTBEAT_BYTES_MAX: usize = 256;

fn open_socket(address: &Address, options: &Options) -> std::io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => socket::connect_unix(path),
        Address::Udp(remote) => {
            let send_options = SendOptions {
                source_address: options.source_address,
                source_port: options.source_port,
                send_buffer_bytes: options.send_buffer_bytes,
                ..SendOptions::default()
            };
            socket::connect_udp(*remote, &send_options)
        }
    }
}

/// Splits a block of consecutive datagrams into messages with as many datagrams as one message may hold.
fn runs<'a>(messages: &mut [Message<'a>], block: &'a [u8], size: usize) -> usize {
    const RUN_BYTES_MAX: usize = 65_507;
    let per_run = (RUN_BYTES_MAX / size).clamp(1, send::SEGMENTS_MAX);
    let mut count = 0;
    for (message, run) in messages.iter_mut().zip(block.chunks(per_run * size)) {
        *message = Message::run(run, size as u16);
        count += 1;
    }
    count
}
