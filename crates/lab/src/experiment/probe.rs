//! Measures the true loss of the path, and how late the host wakes its threads, alongside the flows.

use super::model::MeasuredLoss;
use crate::network::{End, Network};
use crate::transport::RECEIVE_BUFFER_BYTES;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What was measured alongside the flows of one loss rate.
#[derive(Debug, Default)]
pub(crate) struct Probed {
    /// By the number of the run, so that the runs of a point have separate counts.
    pub(crate) losses: Vec<MeasuredLoss>,
    /// One in a hundred wake-ups came this late or later. A message cannot be sent or received before its thread wakes
    /// up.
    pub(crate) late: Duration,
}

const EVERY: Duration = Duration::from_millis(10);

/// Sends numbered datagrams from the first host to the second while the flows run: 100 per second for each run.
pub(crate) fn run(
    network: &Network,
    runs: u32,
    begin: Instant,
    duration: Duration,
    stop: &AtomicBool,
) -> Probed {
    let mut losses = vec![MeasuredLoss::default(); runs as usize];
    let Ok((sender, receiver)) = probe_sockets(network) else { return Probed::default() };
    let mut arrived = vec![0_u64; losses.len()];

    let mut take = || {
        let mut number = [0; 8];
        while receiver.recv(&mut number).is_ok() {
            let number = u64::from_be_bytes(number) as usize;
            if let Some(arrived) = arrived.get_mut(number) {
                *arrived += 1;
            }
        }
    };

    let (mut due, mut lateness) = (begin, Vec::new());
    while due < begin + duration && !stop.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        lateness.push(due.elapsed());
        for (number, loss) in losses.iter_mut().enumerate() {
            loss.packets += u64::from(sender.send(&(number as u64).to_be_bytes()).is_ok());
        }
        take();
        due += EVERY;
    }

    // Delivery normally completes within the call that sends, but the bridge and its queues are in between.
    thread::sleep(Duration::from_millis(50));
    take();
    for (loss, arrived) in losses.iter_mut().zip(arrived) {
        loss.lost = loss.packets.saturating_sub(arrived);
    }

    lateness.sort_unstable();
    let late = lateness.get(lateness.len() * 99 / 100).copied().unwrap_or_default();
    Probed { losses, late }
}

/// Two sockets for numbered datagrams, to which the current loss applies.
fn probe_sockets(network: &Network) -> io::Result<(UdpSocket, UdpSocket)> {
    let [sender, receiver] = End::BOTH.map(|end| {
        let host = network.host(end);
        host.run(|| UdpSocket::bind((host.ipv4(), 0))).map_err(io::Error::other)?
    });
    let (sender, receiver) = (sender?, receiver?);
    sys::socket::set_receive_buffer(receiver.as_fd(), RECEIVE_BUFFER_BYTES)?;
    network.prepare(End::H2, &receiver)?;
    sender.connect(receiver.local_addr()?)?;
    receiver.set_nonblocking(true)?;
    Ok((sender, receiver))
}
