use super::owners::Added;
use super::{ProcessOptions, Processes};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest name kept, in bytes. Kernel threads have up to 63 (`TASK_COMM_LEN`, fs/proc/array.c), processes 15.
const MAX_NAME_BYTES: u64 = 64;

pub(super) fn all(options: &ProcessOptions) -> Processes {
    let entries = fs::read_dir(&options.proc);
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    only(
        options,
        names.filter_map(|name| number(name.as_bytes()).and_then(|pid| u32::try_from(pid).ok())),
    )
}

pub(super) fn only(options: &ProcessOptions, pids: impl IntoIterator<Item = u32>) -> Processes {
    let mut found = Processes::default();
    let mut path = options.proc.clone();
    for pid in pids {
        path.push(pid.to_string());
        process(pid, &mut path, options, &mut found);
        path.pop();
    }
    found
}

fn process(pid: u32, path: &mut PathBuf, options: &ProcessOptions, found: &mut Processes) {
    found.summary.processes += 1;
    found.owners.begin(pid);

    path.push("fd");
    let outcome = fs::read_dir(&*path).and_then(|descriptors| {
        descriptors.flatten().try_for_each(|descriptor| {
            path.push(descriptor.file_name());
            let outcome = one_descriptor(path, options, found);
            path.pop();
            outcome
        })
    });
    path.pop();
    // The name is read only for a process that holds a socket.
    found.owners.finish(|| name(path));

    match outcome.map_err(|error| error.kind()) {
        Ok(()) => {}
        Err(io::ErrorKind::PermissionDenied) => found.summary.denied += 1,
        Err(_) => found.summary.vanished += 1,
    }
}

/// Fails only if nothing of the process may be read. Listing the directory depends on its mode, reading its links on ptrace(2)
/// access (`proc_fd_access_allowed`, fs/proc/base.c), so with only `CAP_DAC_READ_SEARCH` the links can be listed but not read.
fn one_descriptor(path: &Path, options: &ProcessOptions, found: &mut Processes) -> io::Result<()> {
    found.summary.descriptors += 1;
    let target = match fs::read_link(path) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        // Closed since it was listed.
        Err(_) => return Ok(()),
    };

    if let Some(inode) = socket_inode(target.as_os_str())
        && found.owners.add(inode, options.max_sockets, options.max_owners) == Added::Cut
    {
        found.summary.sockets_cut += 1;
    }

    Ok(())
}

/// The number in `socket:[NUMBER]` (`sockfs_dname`, net/socket.c).
fn socket_inode(target: &OsStr) -> Option<u64> {
    number(target.as_bytes().strip_prefix(b"socket:[")?.strip_suffix(b"]")?)
}

fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

fn name(process: &Path) -> Box<str> {
    let mut bytes = Vec::with_capacity(MAX_NAME_BYTES as usize);
    let read = File::open(process.join("comm"))
        .and_then(|file| file.take(MAX_NAME_BYTES).read_to_end(&mut bytes));
    let bytes = if read.is_ok() { bytes.strip_suffix(b"\n").unwrap_or(&bytes) } else { &[] };
    String::from_utf8_lossy(bytes).into()
}
