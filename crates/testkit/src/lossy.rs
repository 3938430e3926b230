//! A network with packet loss.

use crate::Random;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A path that loses packets at random in both directions.
pub struct LossyWay {
    /// The address at which to send to the far end.
    pub addr: SocketAddr,
    pub lost_per_1000: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
    /// Packets in each direction, there and back, including lost ones.
    pub packets: [Arc<AtomicU64>; 2],
    thread: Option<JoinHandle<()>>,
}

impl LossyWay {
    /// A path to `far` from a port of its own on this host.
    ///
    /// # Panics
    /// If no port is available.
    pub fn to(far: SocketAddr, lost_per_1000: u32) -> LossyWay {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let out = UdpSocket::bind("127.0.0.1:0").unwrap();
        out.connect(far).unwrap();
        for socket in [&near, &out] {
            sys::socket::set_receive_buffer(socket.as_fd(), 8 << 20).unwrap();
            socket.set_nonblocking(true).unwrap();
        }
        let addr = near.local_addr().unwrap();
        let mut way = LossyWay {
            addr,
            lost_per_1000: Arc::new(AtomicU32::new(lost_per_1000)),
            is_over: Arc::default(),
            packets: Default::default(),
            thread: None,
        };
        let (lost, is_over) = (Arc::clone(&way.lost_per_1000), Arc::clone(&way.is_over));
        let packets = way.packets.clone();
        let thread = thread::spawn(move || {
            let mut random = Random(7);
            let mut is_lost =
                move || (random.next() % 1_000) < u64::from(lost.load(Ordering::Relaxed));
            let (mut buffer, mut sender) = (vec![0; 65_536], None);
            let mut set = sys::poll::PollSet::default();
            while !is_over.load(Ordering::Relaxed) {
                set.clear();
                set.add(near.as_fd(), sys::poll::Interest::Readable);
                set.add(out.as_fd(), sys::poll::Interest::Readable);
                let _ = set.wait(Duration::from_millis(10));
                while let Ok((len, from)) = near.recv_from(&mut buffer) {
                    sender = Some(from);
                    packets[0].fetch_add(1, Ordering::Relaxed);
                    if !is_lost() {
                        let _ = out.send(&buffer[..len]);
                    }
                }
                while let (Ok(len), Some(to)) = (out.recv(&mut buffer), sender) {
                    packets[1].fetch_add(1, Ordering::Relaxed);
                    if !is_lost() {
                        let _ = near.send_to(&buffer[..len], to);
                    }
                }
            }
        });
        way.thread = Some(thread);
        way
    }
}

impl Drop for LossyWay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
