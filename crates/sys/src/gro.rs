//! Datagrams from one sender that the kernel delivers as one message (`UDP_GRO`, udp(7)), and how many there were.
//!
//! An aggregate is one entry of the socket's queue and one in the kernel's drop count, however many datagrams it holds: in a test
//! with 8,000 datagrams, 6,920 were lost and that count said 173. So a program counts them before they are queued: for each
//! aggregate, the datagrams after its first. The kernel's count covers the firsts, so the two add up to all of them.
//!
//! The program is an eBPF socket filter. Creating it needs a privilege; attaching it to a socket and reading its counts do not.
//! So one process may create it ([`Counter::make`]) and pass its [`descriptors`](Counter::descriptors) to another.

use crate::Errno;
use crate::errno::check;
use crate::socket::set_int;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Most datagrams in one aggregate: 64 from the network (`UDP_GRO_CNT_MAX`, net/ipv4/udp_offload.c), 128 from a sender on this
/// host (`UDP_MAX_SEGMENTS`, include/linux/udp.h).
pub const SEGMENTS_MAX: usize = 128;

/// Has the kernel deliver the datagrams of an aggregate as one message ([`crate::recv::ReceiveBatch::segments`]). Do not turn
/// this off while anything is queued: an aggregate would look like one datagram.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.0, or when the socket is not a UDP socket.
pub fn aggregate(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_int(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Whether the socket delivers aggregates.
pub fn is_aggregating(socket: BorrowedFd<'_>) -> bool {
    let mut value: libc::c_int = 0;
    crate::socket::get(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, &mut value).is_ok()
        && value != 0
}

/// Waits until every packet that the kernel was processing on any CPU when the call began has been queued or dropped.
///
/// The kernel delivers packets inside a read-side critical section (net/ipv4/ip_input.c, `ip_local_deliver_finish`); this waits
/// for all such sections to end (kernel/sched/membarrier.c), which takes some milliseconds.
///
/// # Errors
/// `EINVAL` on a host with CPUs reserved for some tasks (`nohz_full`); `ENOSYS` or `EPERM` where the call is not available.
pub fn settle() -> Result<(), Errno> {
    membarrier(MEMBARRIER_GLOBAL).map(drop)
}

/// Whether [`settle`] is available. Returns at once.
///
/// # Errors
/// As [`settle`].
pub fn can_settle() -> Result<(), Errno> {
    let known = membarrier(MEMBARRIER_QUERY)?;
    if known & MEMBARRIER_GLOBAL != 0 { Ok(()) } else { Err(Errno::INVAL) }
}

/// include/uapi/linux/membarrier.h.
const MEMBARRIER_QUERY: libc::c_int = 0;
const MEMBARRIER_GLOBAL: libc::c_int = 1;

fn membarrier(command: libc::c_int) -> Result<libc::c_int, Errno> {
    // SAFETY: the call takes integers only.
    check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } as libc::c_int)
}

/// Counts the datagrams at one socket that come after the first of an aggregate.
#[derive(Debug)]
pub struct Counter {
    counting: OwnedFd,
    refusing: OwnedFd,
    map: OwnedFd,
    counts: Counts,
}

/// The map's memory, written by the kernel's program.
#[derive(Debug)]
struct Counts(NonNull<AtomicU64>);

// SAFETY: it points to shared memory that lives as long as it does and is only accessed by atomic loads.
unsafe impl Send for Counts {}
// SAFETY: as above.
unsafe impl Sync for Counts {}

/// Indexes into the map: one for the program that accepts everything, one for the program that refuses everything.
const PASSED: usize = 0;
const REFUSED: usize = 1;

/// Size of the map's one value in bytes.
const VALUE_BYTES: u32 = 16;

/// Bytes to map. The map's memory consists of whole pages.
const MAPPED_BYTES: usize = 16;

impl Counter {
    /// Creates a counter with counts of zero.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` (Linux 5.8; before: `CAP_SYS_ADMIN`), unless `kernel.unprivileged_bpf_disabled` is 0; `EACCES`
    /// or `EINVAL` from a kernel before 5.7, whose filters do not see the length of segments.
    pub fn make() -> Result<Counter, Errno> {
        let map = bpf(
            MAP_CREATE,
            &MapCreate {
                map_type: ARRAY,
                key_bytes: 4,
                value_bytes: VALUE_BYTES,
                entries: 1,
                flags: MAPPABLE,
            },
        )?;
        let counting = load(&program(map.as_fd(), PASSED, ACCEPT))?;
        let refusing = load(&program(map.as_fd(), REFUSED, REFUSE))?;
        Counter::from_descriptors([counting, refusing, map])
    }

    /// Builds a counter from the descriptors of one that another process created.
    ///
    /// # Errors
    /// Any of `mmap(2)`, when the last descriptor is not the map.
    pub fn from_descriptors(descriptors: [OwnedFd; 3]) -> Result<Counter, Errno> {
        let [counting, refusing, map] = descriptors;
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours.
        let begin = unsafe {
            libc::mmap(
                ptr::null_mut(),
                MAPPED_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if begin == libc::MAP_FAILED {
            return Err(Errno::last());
        }

        let counts = Counts(NonNull::new(begin.cast()).ok_or(Errno::NOMEM)?);
        Ok(Counter { counting, refusing, map, counts })
    }

    /// The descriptors to pass to another process, in the order in which [`Self::from_descriptors`] takes them.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.counting.as_fd(), self.refusing.as_fd(), self.map.as_fd()]
    }

    /// Starts counting what arrives at a socket, which must not be [aggregating](aggregate) yet. A counter serves one socket.
    ///
    /// # Errors
    /// `EINVAL` when the descriptors are not programs.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        attach(socket, &self.counting)
    }

    /// Makes the socket refuse everything that arrives from now on ([`crate::socket::refuse_new_datagrams`]), and counts it.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn refuse_new_datagrams(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        attach(socket, &self.refusing)
    }

    /// Datagrams after the first of an aggregate that were accepted for the queue.
    pub fn passed(&self) -> u64 {
        self.load(PASSED)
    }

    /// Datagrams after the first of an aggregate that were refused.
    pub fn refused(&self) -> u64 {
        self.load(REFUSED)
    }

    fn load(&self, place: usize) -> u64 {
        // SAFETY: the mapping has `VALUE_BYTES` bytes, which is room for both places, and lives as long as `self`.
        unsafe { self.counts.0.add(place).as_ref() }.load(Ordering::Acquire)
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value alone, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), MAPPED_BYTES) };
    }
}

fn attach(socket: BorrowedFd<'_>, program: &OwnedFd) -> io::Result<()> {
    set_int(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())
}

/// Return values of the program: how many bytes of the packet to keep (Documentation/networking/filter.rst).
const ACCEPT: i32 = -1;
const REFUSE: i32 = 0;

/// One instruction (`struct bpf_insn`, include/uapi/linux/bpf.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// The source register in the upper four bits, the destination in the lower.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A program that counts into one place of the map and returns `verdict`.
///
/// ```text
///      r2 = gso_size of the packet; if it is 0, it is not an aggregate: go to the end
///      r3 = len of the packet, its UDP header included, less that header and 1
///      if r3 is not a valid datagram length, go to the end
///      r3 /= r2: the number of datagrams after the first, of which the last may be shorter
///      add r3 to the place, in one step
/// end: return the verdict
/// ```
///
/// It uses `len` and `gso_size` rather than `gso_segs`, which is 0 in aggregates from a guest (include/linux/virtio_net.h);
/// [`crate::recv`] splits aggregates by segment length too.
fn program(map: BorrowedFd<'_>, place: usize, verdict: i32) -> [Instruction; 10] {
    // `struct __sk_buff`.
    const LEN: i16 = 0;
    const GSO_SIZE: i16 = 176;
    const UDP_HEADER_BYTES: i32 = 8;
    const DATAGRAM_BYTES_MAX: i32 = 65_535;
    let instruction = |code, (to, from): (u8, u8), offset, immediate| Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    };

    [
        instruction(0x61 /* BPF_LDX | BPF_W | BPF_MEM */, (2, 1), GSO_SIZE, 0),
        instruction(0x15 /* BPF_JMP | BPF_JEQ | BPF_K */, (2, 0), 7, 0),
        instruction(0x61 /* BPF_LDX | BPF_W | BPF_MEM */, (3, 1), LEN, 0),
        instruction(
            0x07, /* BPF_ALU64 | BPF_ADD | BPF_K */
            (3, 0),
            0,
            -(UDP_HEADER_BYTES + 1),
        ),
        // The comparison is unsigned, so it also catches a result below zero.
        instruction(0x25 /* BPF_JMP | BPF_JGT | BPF_K */, (3, 0), 4, DATAGRAM_BYTES_MAX),
        instruction(0x3f /* BPF_ALU64 | BPF_DIV | BPF_X */, (3, 2), 0, 0),
        // Two instructions: the address of the map's value, and the place in it (BPF_PSEUDO_MAP_VALUE).
        instruction(0x18 /* BPF_LD | BPF_IMM | BPF_DW */, (1, 2), 0, map.as_raw_fd()),
        instruction(0, (0, 0), 0, (place * mem::size_of::<u64>()) as i32),
        instruction(0xdb /* BPF_STX | BPF_ATOMIC | BPF_DW, BPF_ADD */, (1, 3), 0, 0),
        instruction(0xb7 /* BPF_ALU64 | BPF_MOV | BPF_K */, (0, 0), 0, verdict),
    ]
}

/// The last instruction of every program.
const EXIT: Instruction = Instruction { code: 0x95, registers: 0, offset: 0, immediate: 0 };

fn load(body: &[Instruction]) -> Result<OwnedFd, Errno> {
    let instructions: Vec<_> = body.iter().copied().chain([EXIT]).collect();
    // The license matters only to programs that call certain kernel functions; this one calls none.
    let license = c"Apache-2.0";
    bpf(
        PROG_LOAD,
        &ProgramLoad {
            program_type: SOCKET_FILTER,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
        },
    )
}

/// include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
/// The bpf(2) commands needed to create a counter.
pub(crate) const COMMANDS: [u32; 2] = [MAP_CREATE.unsigned_abs(), PROG_LOAD.unsigned_abs()];
const ARRAY: u32 = 2;
const MAPPABLE: u32 = 1 << 10;
const SOCKET_FILTER: u32 = 1;

/// The beginning of `union bpf_attr` for `BPF_MAP_CREATE`; omitted fields count as zero.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// The same, for `BPF_PROG_LOAD`.
#[repr(C)]
struct ProgramLoad {
    program_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
}

/// Creates what `attributes` describe. The descriptor is close-on-exec, as every descriptor from bpf(2) is.
fn bpf<T>(command: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    let attributes_bytes = mem::size_of::<T>();
    // SAFETY: the pointer and the length describe `attributes`, and the addresses in it are of memory that the callers keep
    // alive.
    let rc = unsafe {
        libc::syscall(libc::SYS_bpf, command, ptr::from_ref(attributes), attributes_bytes)
    };
    let fd = check(rc as libc::c_int)?;
    // SAFETY: the kernel has just created this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests;
