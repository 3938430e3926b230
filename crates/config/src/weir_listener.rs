//! A listener that other Weirs send to.

use crate::address::HostPort;
use crate::form::{path, size, whole};
use crate::keys::keys;
use crate::listener::RECEIVE_BUFFER_BYTES;
use crate::sink::secret_path;
use std::path::PathBuf;

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
        /// File that is kept so that nothing is taken twice, and nothing is uncertain, after this process is killed. For this listener
        /// alone, best on a file system in memory: 25 bytes are written for each datagram. It does not outlive a restart of the machine.
        state => state: Option<PathBuf> = path("path", secret_path), unset("none");
        /// Most memory for the parts of a sender's datagrams that are not complete, but for the oldest one's.
        reassembly_size => parts_bytes: usize = size(64 << 10, 1 << 30), default(1 << 20);
    }
}

impl WeirListener {
    /// What is kept of what others send.
    pub fn receiver_options(&self) -> hop::ReceiverOptions {
        hop::ReceiverOptions { window: self.window, parts_bytes: self.parts_bytes }
    }
}
