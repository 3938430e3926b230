//! A listener that receives from other Weirs.

use crate::address::HostPort;
use crate::form::{Choice, Span, path, size, whole};
use crate::keys::keys;
use crate::listener::RECEIVE_BUFFER_BYTES;
use crate::sink::secret_path;
use std::path::PathBuf;
use std::time::Duration;

keys! {
    /// What a listener that other Weirs send to has.
    pub struct WeirListener in "listener" of "listeners for other Weirs" given {
        /// Port 0 lets the kernel choose one.
        addr: HostPort
    } {
        /// File with the keys of those who may send: a line each, as `weir hop key NAME` prints it. Nobody else is answered.
        keys => keys_file: PathBuf = path("path", secret_path),
            required("write keys = \"/etc/weir/hop.keys\"; `weir hop key NAME` prints what stands in it");
        /// Receive buffer to ask the kernel for, in bytes of its own accounting. What does not fit it is sent again.
        receive_buffer => receive_buffer_bytes: usize = size(4 << 10, 1 << 30),
            default(RECEIVE_BUFFER_BYTES);
        /// Most datagrams, or parts of them, of each sender from the oldest missing one on: four bytes each, as they are needed.
        window => window: u32 = whole(128, 1 << 22), default(65_536);
        /// Whether a sender's datagrams are handed on in the order in which it took them: `any` hands each on as it comes, so that one that had
        /// to be repaired holds up nothing.
        order => order: Order = Choice(&[("any", Order::Any), ("arrival", Order::Arrival)]),
            default(Order::Any);
        /// With `order = "arrival"`, how long a datagram waits for those before it, in at most `reassembly_size` of memory.
        hold => hold: Duration =
            Span(Duration::from_millis(1), Duration::from_secs(60)), default(Duration::from_millis(100));
        /// File that is kept so that nothing is taken twice, and nothing is uncertain, after this process is killed. For this listener
        /// alone, best on a file system in memory: 25 bytes are written for each datagram. It does not outlive a restart of the machine.
        state => state: Option<PathBuf> = path("path", secret_path), unset("none");
        /// Most memory for the parts of a sender's datagrams that are not complete, but for the oldest one's.
        reassembly_size => parts_bytes: usize = size(64 << 10, 1 << 30), default(1 << 20);
    }
}

/// The order in which a sender's datagrams are forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As they arrive.
    Any,
    /// In the order in which the sender received them.
    Arrival,
}

impl WeirListener {
    /// The receiver's limits.
    pub fn receiver_options(&self) -> hop::ReceiverOptions {
        let hold_ns = (self.order == Order::Arrival).then_some(self.hold.as_nanos() as u64);
        hop::ReceiverOptions { window: self.window, parts_bytes: self.parts_bytes, hold_ns }
    }
}
