//! The program that ExaBGP starts.

use mitigate::speaker::{ExaBgp, bridge};
use mitigate::{Session, SpeakError, Speaker};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
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

    // Without a daemon the bridge stays, and with the next one it is there again.
    drop(speaker);
    let mut speaker = ExaBgp::listen(&path).unwrap();
    wait_for("the bridge again", || speaker.session().ok());
    exabgp.flush().unwrap();
    exabgp.shutdown(std::net::Shutdown::Both).unwrap();
    bridging.join().unwrap().unwrap();
}
