use std::fs;

/// The calling thread's id, as used by `/proc` and tools like taskset(1) (`gettid(2)`).
pub fn thread_id() -> u32 {
    // SAFETY: gettid takes nothing and cannot fail.
    let id = unsafe { libc::gettid() };
    id.unsigned_abs()
}

/// Nanoseconds that a thread of this process was runnable but had no CPU: other threads had them, or its control group had used
/// up its quota (the second number of `/proc/self/task/ID/schedstat`). `None` where there is no such thread; 0 where the kernel
/// was built without this counter (`CONFIG_SCHED_INFO`).
pub fn waited_ns(thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_its_id_and_how_long_it_waited() {
        assert_eq!(
            fs::read_link("/proc/thread-self").unwrap().file_name().unwrap().to_str().unwrap(),
            thread_id().to_string()
        );
        let first = waited_ns(thread_id()).unwrap();
        assert!(waited_ns(thread_id()).unwrap() >= first);
        assert_eq!(waited_ns(0), None);
    }
}
