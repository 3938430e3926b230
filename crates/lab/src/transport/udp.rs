//! Datagrams: one message each, without retransmission.

use super::{Listening, Received, Receiving, Sending, Sent, Transport};
use crate::experiment::model::TransportName;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Receive buffer of every transport over UDP, in bytes: four seconds of an experiment's messages, so that delays on the host
/// do not count as loss of the path.
pub const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

pub(super) struct Udp;

impl Transport for Udp {
    fn name(&self) -> TransportName {
        TransportName::new(TransportName::UDP)
    }

    fn options(&self) -> String {
        format!("receive buffer {RECEIVE_BUFFER_BYTES} bytes")
    }

    fn repairs_for(&self) -> Duration {
        Duration::ZERO
    }

    fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listening>> {
        let socket = UdpSocket::bind(addr)?;
        // As much as is allowed; overflows are counted.
        sys::socket::set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER_BYTES)?;
        Ok(Box::new(End(socket)))
    }

    fn connect(&self, to: SocketAddr, _deadline: Instant) -> io::Result<Box<dyn Sending>> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        Ok(Box::new(End(socket)))
    }
}

struct End(UdpSocket);

impl Listening for End {
    fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn accept(self: Box<Self>, _deadline: Instant) -> io::Result<Box<dyn Receiving>> {
        Ok(self)
    }
}

impl Sending for End {
    fn send(&mut self, message: &[u8], _deadline: Instant) -> io::Result<Sent> {
        match self.0.send(message) {
            Ok(_) => Ok(Sent::Taken),
            // The device's queue is full: the datagram is lost, as on a cable.
            Err(error) if error.raw_os_error() == Some(sys::Errno::NOBUFS.0) => Ok(Sent::Refused),
            Err(error) => Err(error),
        }
    }

    fn go_on(&mut self, _deadline: Instant) -> io::Result<Sent> {
        Ok(Sent::Taken)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn tcp(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Receiving for End {
    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<Received> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Received::Nothing);
            }

            self.0.set_read_timeout(Some(left.max(Duration::from_micros(1))))?;
            match self.0.recv(message) {
                Ok(len) if len == message.len() => return Ok(Received::Message),
                // Not one of this run's messages.
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
