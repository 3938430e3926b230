//! The most memory that the collector takes in addition to its table and the kernel's buffers, for those who plan it.

use crate::attribution::CgroupOptions;
use crate::held::HELD_MAX;

/// Bytes of a close event that is held: its message of some 500 bytes, and what is known of it.
const HELD_EVENT_BYTES: usize = 640;
/// Bytes of a cgroup that is kept, besides its path and names: its place in the cache, and the parts' own headers.
const CGROUP_BYTES: usize = 160;

/// Close events that wait for a look into their namespace, in bytes.
pub const HELD_BYTES_MAX: usize = HELD_MAX * HELD_EVENT_BYTES;

/// The most memory that answers to questions take in this process, in bytes: the one under way, and two that wait for their
/// readers. Each is what waits, 1 MiB, one more datagram's worth of sockets, and buffers.
pub const ANSWERS_BYTES_MAX: usize = 4 << 20;

/// Cgroups that are kept, in bytes.
#[must_use]
pub fn cgroup_bytes_max() -> usize {
    let CgroupOptions { max_cgroups, max_bytes, .. } = CgroupOptions::default();
    max_bytes + max_cgroups * CGROUP_BYTES
}
