//! Huge pages, and what the allocator keeps.

/// Blocks of this size and more, in bytes, go back to the kernel when they are freed.
#[cfg(target_env = "gnu")]
const RETURNED_BYTES_MIN: i32 = 1 << 20;

/// Has the allocator return large blocks to the kernel as soon as they are freed (`M_MMAP_THRESHOLD`, mallopt(3)).
///
/// By default glibc raises that size up to 32 MiB with each larger block that is freed, and keeps such blocks in the arena of
/// the thread that asked for them: a buffer of some megabytes that is needed once a minute then stays resident, in as many
/// arenas as there are threads. Does nothing with other allocators: that of musl returns them by itself.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes integers. It returns 0 for a value that it refuses, and then changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, RETURNED_BYTES_MIN)
    };
}

/// Asks for huge pages for a vector's allocation. Reports nothing: the kernel may have none. Call it when the capacity has grown,
/// before the memory is written to. For memory that is read in random order, a page of 2 MiB saves the page-table walk that each
/// access to a 4 KiB page costs when there are more pages than the TLB holds (`Documentation/admin-guide/mm/transhuge.rst`,
/// `madvise`).
///
/// Memory is then used in huge pages, but never more than the capacity: only huge pages that lie entirely within it are
/// requested.
pub fn prefer_huge_pages<T>(vector: &Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        let start = vector.as_ptr().addr();
        let end = start + vector.capacity() * size_of::<T>();
        let first = start.next_multiple_of(HUGE_BYTES);
        let len = (end / HUGE_BYTES * HUGE_BYTES).saturating_sub(first);
        if len == 0 {
            return;
        }
        let first = vector.as_ptr().cast::<libc::c_void>().wrapping_byte_add(first - start);
        // SAFETY: the pages lie within the vector's own memory, and this advice changes nothing of what is in it.
        unsafe { libc::madvise(first.cast_mut(), len, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = vector;
}

/// Size of a huge page where the base page is 4 KiB.
#[cfg(target_os = "linux")]
const HUGE_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_any_size_stay_what_they_are() {
        for len in [0, 1, 1 << 16, 1 << 20] {
            let mut vector: Vec<u64> = Vec::with_capacity(len);
            prefer_huge_pages(&vector);
            vector.extend(0..len as u64);
            prefer_huge_pages(&vector);
            assert!(vector.iter().zip(0..).all(|(one, at)| *one == at));
        }
    }
}
