//! A listener that receives from other Weirs.

use crate::address::HostPort;
use crate::form::{Choice, Span, path, size, whole};
use crate::keys::keys;
use crate::listener::RECEIVE_BUFFER_BYTES;
use crate::sink::secret_path;
use std::path::PathBuf;
use std::time::Duration;

/// Memory for the datagrams of all senders, unless one sender may need more than a quarter of it.
const LINK_MEMORY_BYTES: usize = 64 << 20;

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
        /// Most memory for what the datagrams of all senders need until they are handed on: numbers, parts, and datagrams that wait. What has no
        /// room is sent again. A key has at most half of it, and a sender a third. If it is not given: 64MiB, or four times what `window` and
        /// `reassembly_size` allow one sender, if that is more.
        link_memory => link_memory: Option<usize> = size(1 << 20, 64 << 30), unset("64MiB or more");
        /// Most senders that the listener is made for. Twice as many sessions and four times as many runs are remembered; then those of the key
        /// that has most give way.
        senders_max => senders_max: u32 = whole(16, 32_768), default(20_000);
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
        hop::ReceiverOptions {
            window: self.window,
            parts_bytes: self.parts_bytes,
            hold_ns,
            room_bytes: self.link_memory.unwrap_or_else(|| self.link_memory_default()),
            senders_max: self.senders_max,
        }
    }

    /// The most memory that the receiving end takes, in bytes, with its state file.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        let options = self.receiver_options();
        let kept_bytes = self.state.as_ref().map_or(0, |_| hop::kept_bytes_max(options));
        (hop::tables_bytes_max(options) + kept_bytes) as u64
    }

    fn link_memory_default(&self) -> usize {
        // Four bytes for each number, parts, and as many bytes that wait for their turn.
        let of_sender = 4 * self.window as usize + 2 * self.parts_bytes;
        LINK_MEMORY_BYTES.max(4 * of_sender)
    }
}
