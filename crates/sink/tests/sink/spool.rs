//! The spool on real file systems: full disks, and killed processes.

use sink::spool::{
    AppendError, Ended, EntryId, Folder, OpenError, Options, Read, Recovered, Spool,
};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sys::Errno;
use testkit::{OwnProgram, Peer, Random, TempDir, run, skip, wait_for};

fn open(path: &Path, options: Options) -> (Spool, Recovered) {
    Spool::open(Folder::open(path).unwrap(), options).unwrap()
}

/// Entry `number`: any length, with bytes derived from its number.
fn entry(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let len = 1 + random.below(20_000) as usize;
    let mut bytes = vec![0; len];
    for piece in bytes.chunks_mut(8) {
        piece.copy_from_slice(&random.next().to_le_bytes()[..piece.len()]);
    }
    bytes
}

/// Reads what is left, which must be entries `from..` without a gap; returns the number after the last, and its id.
fn read_all(spool: &mut Spool, from: u64) -> (u64, Option<EntryId>) {
    let (mut number, mut last) = (from, None);
    while let Some(read) = spool.read().unwrap() {
        let Read::Entry(read) = read else { panic!("a gap at {number}: {read:?}") };
        assert_eq!((read.id.number(), read.rows), (number, 1));
        assert_eq!(read.bytes, entry(number));
        last = Some(read.id);
        number += 1;
    }
    (number, last)
}

#[test]
fn a_spool_is_its_owners_alone() {
    let dir = TempDir::new();
    let path = dir.file("of/sink");
    let (mut spool, recovered) = open(&path, Options::default());
    assert_eq!(recovered, Recovered::default());
    spool.append(1, 1, b"x").unwrap();
    spool.sync().unwrap();

    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let mut files = 0;
    for file in fs::read_dir(&path).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
        files += 1;
    }
    assert_eq!(files, 2);

    assert_eq!(Folder::open(&path).err(), Some(OpenError::Locked));
    spool.close().unwrap();
    assert_eq!(open(&path, Options::default()).1.ended, Ended::Closed);
}

#[test]
fn no_link_is_followed() {
    let dir = TempDir::new();
    let (path, elsewhere) = (dir.file("spool"), dir.file("elsewhere"));
    open(&path, Options::default()).0.close().unwrap();

    symlink(&path, dir.file("link")).unwrap();
    // O_NOFOLLOW with O_DIRECTORY: the link is not a directory.
    let refused = Folder::open(&dir.file("link")).err();
    assert_eq!(refused, Some(OpenError::Io(Errno(libc::ENOTDIR))));

    fs::write(&elsewhere, "theirs").unwrap();
    fs::remove_file(path.join("cursor")).unwrap();
    symlink(&elsewhere, path.join("cursor")).unwrap();
    let refused = Spool::open(Folder::open(&path).unwrap(), Options::default()).err();
    assert_eq!(refused, Some(OpenError::Io(Errno(libc::ELOOP))));
    assert_eq!(fs::read(&elsewhere).unwrap(), b"theirs");
}

/// A file system of 1 MiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = TempDir::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "weir-test"]).arg(dir.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| SmallDisk(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(self.0.path()));
    }
}

#[test]
fn a_full_disk_is_a_state_that_ends_by_itself() {
    let Some(disk) = SmallDisk::mount() else {
        skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
        return;
    };
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 300_000]).unwrap();
    let options = Options { bytes_max: 1 << 30, segment_bytes: 100_000 };
    let (mut spool, _) = open(&disk.path().join("spool"), options);

    let mut number = 1;
    let append_until_full = |spool: &mut Spool, number: &mut u64| loop {
        match spool.append(1, 1, &entry(*number)) {
            Ok(id) => assert_eq!(id.number(), *number),
            Err(AppendError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        *number += 1;
    };
    append_until_full(&mut spool, &mut number);
    let when_full = number;
    assert!(when_full > 20, "{when_full}");

    // Space freed by others is used.
    fs::remove_file(&filler).unwrap();
    wait_for("the room of the filler", || {
        append_until_full(&mut spool, &mut number);
        (number > when_full + 10).then_some(())
    });

    // So is the spool's own space, once it is acknowledged.
    let mut last = None;
    for at in 1..number {
        let Some(Read::Entry(read)) = spool.read().unwrap() else { panic!("no entry {at}") };
        assert_eq!((read.id.number(), read.bytes), (at, entry(at).as_slice()));
        last = Some(read.id);
    }
    spool.acknowledge(last.unwrap());
    let first_again = number;
    wait_for("its own room", || {
        append_until_full(&mut spool, &mut number);
        (number > first_again + 10).then_some(())
    });
    assert_eq!(read_all(&mut spool, first_again).0, number);
    // The mark that a sync writes may find no room; existing data stays.
    let _ = spool.sync();
    drop(spool);
    let (mut spool, _) = open(&disk.path().join("spool"), options);
    let from = spool.figures().oldest;
    assert!(from <= first_again);
    assert_eq!(read_all(&mut spool, from).0, number);
}

const CHILD_FOLDER: &str = "WEIR_TEST_SPOOL";

/// Appends and syncs until it is killed; prints what is synced.
#[test]
fn child_that_appends() {
    let Some(path) = env::var_os(CHILD_FOLDER) else { return };
    let options = Options { bytes_max: 1 << 30, segment_bytes: 200_000 };
    let (mut spool, _) = open(Path::new(&path), options);
    let mut number = spool.figures().oldest + spool.figures().waiting.entries;
    let mut stdout = std::io::stdout();
    loop {
        for _ in 0..1 + number % 7 {
            spool.append(1, 1, &entry(number)).unwrap();
            number += 1;
        }
        writeln!(stdout, "appended {}", number - 1).unwrap();
        spool.sync().unwrap();
        writeln!(stdout, "synced {}", number - 1).unwrap();
    }
}

#[test]
fn a_process_that_is_killed_at_any_moment_loses_only_what_it_had_not_synced() {
    const KILLS: u64 = 200;
    let dir = TempDir::new();
    let path = dir.file("spool");
    let program = OwnProgram::copy("spool");
    let options = Options { bytes_max: 1 << 30, segment_bytes: 200_000 };
    let mut random = Random(11);
    let (mut next, mut most_unsynced) = (1, 0);

    for _ in 0..KILLS {
        let mut command = program.command(&["spool::child_that_appends"]);
        command.env(CHILD_FOLDER, &path).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = Peer::start(&mut command);
        let synced = kill_at(&mut child, Duration::from_micros(random.below(20_000)));

        let (mut spool, recovered) = open(&path, options);
        assert_eq!(recovered.ended, Ended::Crashed);
        let from = spool.figures().oldest;
        assert_eq!(from, next);
        let (end, last) = read_all(&mut spool, from);
        assert!(end > synced, "{synced} was synced, and {end} would be next");
        most_unsynced = most_unsynced.max(end - 1 - synced.max(next - 1));
        // At most one round is between the last reported sync and the last append.
        assert!(end - 1 <= synced.max(next - 1) + 14, "{end} after {synced}");

        spool.acknowledge(last.unwrap());
        spool.close().unwrap();
        let sizes =
            fs::read_dir(&path).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
        assert_eq!(sizes.sum::<u64>(), 2 * 4096, "only the cursor is left");
        next = end;
    }
    testkit::say(&format!(
        "spool: {KILLS} kills, {next} entries, at most {most_unsynced} unsynced"
    ));
}

/// Kills the child some time after its first entries; returns the number of the last entry that it reported as synced.
fn kill_at(child: &mut Peer, after: Duration) -> u64 {
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut synced = 0;
    let mut kill_at = None;
    let mut killed = false;
    while let Some(Ok(line)) = lines.next() {
        if let Some((_, number)) = line.split_once("synced ") {
            synced = number.parse().unwrap_or(synced);
            kill_at.get_or_insert_with(|| Instant::now() + after);
        }
        if !killed && kill_at.is_some_and(|at| Instant::now() >= at) {
            child.0.kill().unwrap();
            killed = true;
        }
    }
    child.0.wait().unwrap();
    synced
}

/// `WEIR_SPOOL_MEASURE=/path cargo test --release -p sink --test sink spool::throughput -- --nocapture` measures the throughput
/// there.
#[test]
fn throughput() {
    let Some(path) = env::var_os("WEIR_SPOOL_MEASURE") else { return };
    let path = Path::new(&path).join("spool-throughput");
    const ENTRIES: u32 = 32_768; // 2 GiB
    let options = Options { bytes_max: 8 << 30, ..Options::default() };
    let bytes: Vec<u8> = (0..65_536_u32).map(|at| (at * 31) as u8).collect();
    let (mut spool, _) = open(&path, options);

    let begin = Instant::now();
    let (mut synced, mut syncs) = (Instant::now(), 0);
    for _ in 0..ENTRIES {
        spool.append(300, 60_000, &bytes).unwrap();
        if synced.elapsed() >= Duration::from_millis(100) {
            spool.sync().unwrap();
            (synced, syncs) = (Instant::now(), syncs + 1);
        }
    }
    spool.sync().unwrap();
    let appended = begin.elapsed();

    let begin = Instant::now();
    let mut last = None;
    while let Some(Read::Entry(read)) = spool.read().unwrap() {
        last = Some(read.id);
    }
    let read = begin.elapsed();
    spool.acknowledge(last.unwrap());
    spool.close().unwrap();

    let mib_per_s = |time: Duration| f64::from(ENTRIES) / 16.0 / time.as_secs_f64();
    testkit::say(&format!(
        "append {:.0} MiB/s with {syncs} syncs, read {:.0} MiB/s",
        mib_per_s(appended),
        mib_per_s(read)
    ));
    fs::remove_dir_all(&path).unwrap();
}
