//! Upper bounds of the collector's memory beyond its table and the kernel's buffers, for planning.

use crate::attribution::CgroupOptions;
use crate::held::HELD_MAX;

/// Size of a held close event, in bytes: its message of about 500 bytes, and its context.
const HELD_EVENT_BYTES: usize = 640;
/// Size of a cached cgroup besides its path and names, in bytes: its place in the cache, and headers.
const CGROUP_BYTES: usize = 160;

/// Maximum size of the close events that wait for a look into their namespace, in bytes.
pub const HELD_BYTES_MAX: usize = HELD_MAX * HELD_EVENT_BYTES;

/// The most memory that answers to questions take in this process, in bytes: the one under way, and two that wait for their
/// readers. Each is what waits, 1 MiB, one more datagram's worth of sockets, and buffers. The rest is for sixteen rankings of 200 rows
/// of some 1.3 kB and 2,000 groups of some 150 bytes.
pub const ANSWERS_BYTES_MAX: usize = 13 << 20;

/// Maximum size of the cgroup cache, in bytes.
#[must_use]
pub fn cgroup_bytes_max() -> usize {
    let CgroupOptions { max_cgroups, max_bytes, .. } = CgroupOptions::default();
    max_bytes + max_cgroups * CGROUP_BYTES
}
