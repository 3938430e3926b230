//! The program that ExaBGP starts.

use mitigate::speaker::{ExaBgp, bridge};
use mitigate::{Session, SpeakError, Speaker};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use testkit::{TempDir, wait_for};

#[test]
fn a_command_goes_out_and_its_answer_comes_back() {
    let folder = TempDir::new();
    let path = folder.path().join("exabgp.sock");
    let mut speaker = ExaBgp::listen(&path).unwrap();
    assert!(matches!(speaker.session(), Err(SpeakError::Lost(_))));

    // ExaBGP's ends of the pipes.
    let (mut exabgp, theirs) = UnixStream::pair().unwrap();
    let output = theirs.try_clone().unwrap();
    let joined = path.clone();
    let bridging = thread::spawn(move || bridge(&joined, theirs, output));
    let first = wait_for("the bridge", || speaker.session().ok());
    assert_eq!(first, Session::Fresh);
    assert_eq!(speaker.session().unwrap(), Session::Same);

    let nlri = mitigate::Nlri::Unicast("192.0.2.1/32".parse().unwrap());
    let mut answering = exabgp.try_clone().unwrap();
    let exabgp_says = thread::spawn(move || {
        let mut line = [0; 128];
        let n = answering.read(&mut line).unwrap();
        answering.write_all(b"an event\ndone\n").unwrap();
        let second = answering.read(&mut [0; 128]).unwrap();
        answering.write_all(b"error\n").unwrap();
        (String::from_utf8_lossy(&line[..n]).into_owned(), second)
    });
    speaker.withdraw(&nlri).unwrap();
    assert!(matches!(speaker.withdraw(&nlri), Err(SpeakError::Refused(_))));
    let (line, _) = exabgp_says.join().unwrap();
    assert_eq!(line, "withdraw route 192.0.2.1/32 next-hop 0.0.0.0\n");

    // Without a daemon the bridge stays, and it connects to the next one.
    drop(speaker);
    let mut speaker = ExaBgp::listen(&path).unwrap();
    wait_for("the bridge again", || speaker.session().ok());
    exabgp.flush().unwrap();
    exabgp.shutdown(std::net::Shutdown::Both).unwrap();
    bridging.join().unwrap().unwrap();
}

#[test]
fn a_socket_that_lives_is_left_alone_and_one_that_is_dead_is_replaced() {
    let folder = TempDir::new();
    let path = folder.path().join("exabgp.sock");
    let mut first = ExaBgp::listen(&path).unwrap();
    let bridge = UnixStream::connect(&path).unwrap();
    assert_eq!(first.session().unwrap(), Session::Fresh);

    let refused = ExaBgp::listen(&path).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::AddrInUse, "{refused}");
    assert_eq!(first.session().unwrap(), Session::Same, "it has noticed nothing");
    drop((bridge, first));

    // A killed process leaves its socket behind.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let second = ExaBgp::listen(&path).unwrap();

    // A socket that another process has put there must not be removed.
    fs::remove_file(&path).unwrap();
    let _third = UnixListener::bind(&path).unwrap();
    drop(second);
    assert!(path.exists());
}

/// After a daemon has given up on an answer, or died, the next one must get neither that answer nor half
/// a command.
#[test]
fn a_late_answer_is_for_nobody() {
    let folder = TempDir::new();
    let path = folder.path().join("exabgp.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (mut exabgp, theirs) = UnixStream::pair().unwrap();
    let output = theirs.try_clone().unwrap();
    let bridging = thread::spawn(move || bridge(&path, theirs, output));
    let read = |from: &mut UnixStream| {
        let mut buf = [0; 128];
        let n = from.read(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..n]).into_owned()
    };

    let (mut daemon, _) = listener.accept().unwrap();
    daemon.write_all(b"first\n").unwrap();
    assert_eq!(read(&mut exabgp), "first\n");
    daemon.write_all(b"hal").unwrap();
    drop(daemon);

    let (mut daemon, _) = listener.accept().unwrap();
    daemon.write_all(b"second\n").unwrap();
    assert_eq!(read(&mut exabgp), "second\n");
    exabgp.write_all(b"done\nerror\n").unwrap();
    assert_eq!(read(&mut daemon), "error\n");

    exabgp.shutdown(std::net::Shutdown::Both).unwrap();
    bridging.join().unwrap().unwrap();
}
