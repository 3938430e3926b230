//! What a killed process or a power failure leaves of a file target, and what the next process makes of it.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic as the test does")]

mod support;

use ledger::{Event, HopKind};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::process::{Ended, TempDir, Weir, hop, sender, wait_for};

const FORMATS: [&str; 3] = ["lines", "length-prefixed", "pcap"];

/// Starts a relay to the file, named `copy`.
fn relay(path: &Path, format: &str, more: &str) -> Weir {
    let to = format!("file:{}?name=copy&format={format}{more}", path.display());
    Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to])
}

/// A relay that writes one datagram, and ends.
fn append_one(path: &Path, format: &str, more: &str, text: &str) -> Ended {
    let weir = relay(path, format, more);
    sender(weir.address()).send(text.as_bytes()).unwrap();
    weir.wait_for_rest(1);
    weir.stop()
}

fn event(ended: &Ended, event: Event) -> u64 {
    hop(&ended.ledger, HopKind::Target, "copy").event(event)
}

/// The payloads of the whole records, and how many bytes are left behind them.
fn split(format: &str, file: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let mut rest = if format == "pcap" { &file[24..] } else { file };
    let mut payloads = Vec::new();
    while let Some((begin, end)) = first_record(format, rest) {
        payloads.push(rest[begin..end].to_vec());
        rest = &rest[if format == "lines" { end + 1 } else { end }..];
    }
    (payloads, rest.len())
}

/// Where the payload of the first record begins and ends, if the record is there to its end.
fn first_record(format: &str, rest: &[u8]) -> Option<(usize, usize)> {
    let (begin, end) = match format {
        "lines" => (0, rest.iter().position(|&byte| byte == b'\n')?),
        "length-prefixed" => {
            (4, 4 + u32::from_be_bytes(*rest.first_chunk().unwrap_or(&[255; 4])) as usize)
        }
        // 16 bytes before the packet, and headers of IPv4 and UDP.
        _ => (44, 16 + u32::from_le_bytes(rest.get(8..12)?.try_into().unwrap()) as usize),
    };
    (end <= rest.len()).then_some((begin, end))
}

/// A number, and text up to a length that makes writes long.
fn numbered(number: u32) -> Vec<u8> {
    format!("{number:08}{}", "x".repeat(number as usize * 37 % 9_000)).into_bytes()
}

fn number_of(payload: &[u8]) -> Option<u32> {
    std::str::from_utf8(payload.get(..8)?).ok()?.parse().ok()
}

fn len_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// Sends until the file has grown by a megabyte, then kills the relay in the middle of what it is doing.
fn kill_under_load(path: &Path, format: &str, next: &mut u32) {
    let weir = relay(path, format, "");
    let client = sender(weir.address());
    let enough_bytes = len_of(path) + (1 << 20);
    let mut send_and_look = || {
        for _ in 0..64 {
            let _ = client.send(&numbered(*next));
            *next += 1;
        }
        (len_of(path) >= enough_bytes).then_some(())
    };
    while send_and_look().is_none() {
        wait_for(|| "the file grows".to_owned(), &mut send_and_look);
    }
    // Dropping it sends SIGKILL.
    drop(weir);
}

#[test]
fn a_file_torn_by_sigkill_under_load_stays_readable_to_its_end() {
    for format in FORMATS {
        let dir = TempDir::new();
        let path = dir.file("copy");
        let (mut next, mut whole, mut is_torn) = (0, Vec::new(), false);
        for lost_bytes in [0, 1, 3, 17] {
            kill_under_load(&path, format, &mut next);
            // A power failure may take more of the last write.
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(len_of(&path) - lost_bytes).unwrap();
            let (payloads, rest) = split(format, &fs::read(&path).unwrap());
            assert!(payloads.starts_with(&whole), "{format}: whole records are gone");
            (whole, is_torn) = (payloads, rest > 0);
            if format == "lines" && rest > 0 {
                // The torn line becomes a line of its own.
                let file = fs::read(&path).unwrap();
                whole.push(file[file.len() - rest..].to_vec());
            }
        }
        let ended = append_one(&path, format, "", "the end");
        assert_eq!((ended.code, event(&ended, Event::FileTailsMended)), (Some(0), is_torn.into()));
        assert_eq!(ended.said.contains("torn record"), is_torn, "{}", ended.said);
        let (payloads, rest) = split(format, &fs::read(&path).unwrap());
        assert_eq!(rest, 0, "{format}: something at the end cannot be read");
        assert_eq!(payloads.last().unwrap(), b"the end");
        assert!(payloads[..payloads.len() - 1] == whole, "{format}");
        // Up to the kill everything is in order; a torn line may end in its number.
        let numbers: Vec<_> = whole.iter().filter_map(|payload| number_of(payload)).collect();
        assert!(numbers.is_sorted() && numbers.len() > 100, "{format}: {}", numbers.len());
    }
}

#[test]
fn a_file_that_ends_whole_is_continued_as_it_is() {
    for format in FORMATS {
        let dir = TempDir::new();
        let path = dir.file("copy");
        append_one(&path, format, "", "one");
        let before = fs::read(&path).unwrap();
        let ended = append_one(&path, format, "", "two");
        let after = fs::read(&path).unwrap();
        assert!(after.starts_with(&before), "{format}");
        assert_eq!(split(format, &after), (vec![b"one".to_vec(), b"two".to_vec()], 0));
        let events = [event(&ended, Event::FileTailsMended), event(&ended, Event::FilesSetAside)];
        assert_eq!(events, [0, 0], "{format}");
    }
}

#[test]
fn a_file_of_somebody_else_or_too_long_to_look_through_is_set_aside() {
    for format in ["length-prefixed", "pcap"] {
        let dir = TempDir::new();
        let path = dir.file("copy");
        let foreign = b"Feb  3 10:00:00 host app: not a record\n";
        let aside = |suffix: &str| dir.file(&format!("copy{suffix}"));
        // Without rotation under names that nothing deletes, with it as a rotated file.
        for (more, suffix) in [("", ".aside-1"), ("", ".aside-2"), ("&rotate_size=1MiB", ".1")] {
            fs::write(&path, foreign).unwrap();
            let ended = append_one(&path, format, more, "ours");
            assert_eq!(event(&ended, Event::FilesSetAside), 1, "{format} {suffix}");
            assert!(ended.said.contains("has another name now"), "{}", ended.said);
            assert_eq!(fs::read(aside(suffix)).unwrap(), foreign);
            assert_eq!(split(format, &fs::read(&path).unwrap()), (vec![b"ours".to_vec()], 0));
        }
        // A hole takes no room on the disk.
        let long = OpenOptions::new().write(true).open(&path).unwrap();
        long.set_len(300 << 20).unwrap();
        append_one(&path, format, "", "next");
        assert_eq!(len_of(&aside(".aside-3")), 300 << 20);
        assert_eq!(split(format, &fs::read(&path).unwrap()), (vec![b"next".to_vec()], 0));
    }
}

/// A second writer takes a write of the first that is on its way for no torn record.
#[test]
fn a_file_that_somebody_else_has_open_is_not_cut() {
    let dir = TempDir::new();
    let path = dir.file("copy");
    let first = relay(&path, "length-prefixed", "");
    sender(first.address()).send(b"one").unwrap();
    first.wait_for_rest(1);
    // Half of a record, as if the first were in the middle of a write.
    let half = [0, 0, 0, 9, b'h'];
    let mut file = fs::read(&path).unwrap();
    file.extend_from_slice(&half);
    fs::write(&path, &file).unwrap();
    let ended = append_one(&path, "length-prefixed", "", "two");
    assert_eq!(event(&ended, Event::FileTailsMended), 0);
    assert!(fs::read(&path).unwrap().starts_with(&file));
    assert_eq!(first.stop().code, Some(0));
}

/// Payloads are read by the owner and the group, whatever the umask would allow.
#[test]
fn files_and_rotated_files_cannot_be_read_by_others() {
    for format in FORMATS {
        let dir = TempDir::new();
        let path = dir.file("copy");
        let mut command = std::process::Command::new("sh");
        let to = format!("file:{}?format={format}&rotate_size=64KiB", path.display());
        command.args(["-c", "umask 0; exec \"$@\"", "sh", support::process::WEIR, "relay"]);
        command.args(["--progress", "off", "--listen", "127.0.0.1:0", "--to", &to]);
        let weir = Weir::start(command);
        let client = sender(weir.address());
        for count in 1..=3 {
            client.send(&[b'x'; 40_000]).unwrap();
            weir.wait_for_rest(count);
        }
        // Rotated by the relay, and begun anew after somebody has taken it away.
        fs::rename(&path, dir.file("taken")).unwrap();
        client.send(b"last").unwrap();
        weir.wait_for_rest(4);
        assert_eq!(weir.stop().code, Some(0));
        for name in ["copy", "copy.1", "copy.2", "taken"] {
            let mode = fs::metadata(dir.file(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o640, "{format}: {name}");
        }
    }
}
