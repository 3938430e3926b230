//! What is freed leaves the process. In an executable of its own, since all tests of one share the allocator.

#![cfg(target_env = "gnu")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sys::process::resident_bytes;

/// Uses a block of 8 MiB and frees it. Returns the resident memory after that, in bytes.
fn after_a_block() -> u64 {
    std::hint::black_box(vec![1_u8; 8 << 20]);
    resident_bytes().unwrap()
}

#[test]
fn a_large_block_goes_back_to_the_kernel_each_time() {
    sys::memory::return_large_blocks();
    let first = after_a_block();
    for _ in 0..10 {
        assert!(after_a_block() < first + (1 << 20));
    }
}
