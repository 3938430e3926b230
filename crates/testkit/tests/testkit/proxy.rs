//! Client and server see each fault of the proxy as described, and it is counted.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use testkit::proxy::{Fault, Proxy};
use testkit::{DEADLINE, wait_for};

/// A server that echoes what it receives. For each connection that has ended, it reports how many bytes
/// arrived.
fn echo() -> (SocketAddr, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (ended, ends) = mpsc::channel();
    // It ends with the test's process: a waiting listener cannot be interrupted.
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let ended = ended.clone();
            thread::spawn(move || {
                let (mut buffer, mut received) = ([0; 10_000], 0);
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    received += len;
                    if stream.write_all(&buffer[..len]).is_err() {
                        break;
                    }
                }
                let _ = ended.send(received);
            });
        }
    });
    (addr, ends)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, question: &[u8]) -> Vec<u8> {
    stream.write_all(question).unwrap();
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer).unwrap();
    answer
}

fn fires(proxy: &Proxy, count: u64) {
    wait_for(
        || format!("{} of {count} faults", proxy.fired()),
        || (proxy.fired() == count).then_some(()),
    );
}

/// The rest of what a client reads, and how its connection ended.
fn rest(stream: &mut TcpStream) -> (usize, Option<ErrorKind>) {
    let mut read = Vec::new();
    let end = stream.read_to_end(&mut read).err().map(|error| error.kind());
    (read.len(), end)
}

#[test]
fn without_a_fault_it_forwards_both_ways_and_forwards_the_end() {
    let (server, ends) = echo();
    let proxy = Proxy::start(server);
    let mut stream = connect(&proxy);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();

    let mut sender = stream.try_clone().unwrap();
    let payload = sent.clone();
    let sending = thread::spawn(move || {
        sender.write_all(&payload).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    sending.join().unwrap();

    assert!(received == sent);
    assert_eq!(ends.recv().unwrap(), sent.len());
    let counts = (proxy.accepted(), proxy.sent_bytes(), proxy.answered_bytes(), proxy.fired());
    assert_eq!(counts, (1, sent.len() as u64, sent.len() as u64, 0));
}

#[test]
fn slow_takes_as_long_as_the_rate_says() {
    let proxy = Proxy::start(echo().0);
    let mut stream = connect(&proxy);
    proxy.set(Fault::Slow { bytes_per_sec: 100_000 });
    let begin = Instant::now();
    assert_eq!(ask(&mut stream, &[7; 40_000]), [7; 40_000]);
    // Of 40,000 bytes, 10,000 may have been saved up.
    assert!(begin.elapsed() >= Duration::from_millis(290), "{:?}", begin.elapsed());
    assert_eq!(proxy.fired(), 1);
}

#[test]
fn hang_keeps_what_is_sent_until_it_is_over() {
    let proxy = Proxy::start(echo().0);
    let mut old = connect(&proxy);
    assert_eq!(ask(&mut old, b"before"), b"before");
    proxy.set(Fault::Hang);
    old.write_all(b"old").unwrap();
    let mut new = connect(&proxy);
    new.write_all(b"new").unwrap();
    fires(&proxy, 2);
    assert_eq!(proxy.sent_bytes(), 6);

    proxy.set(Fault::None);
    for (stream, sent) in [(&mut old, b"old"), (&mut new, b"new")] {
        let mut answer = [0; 3];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, sent);
    }
}

#[test]
fn refuse_is_a_server_that_is_gone() {
    let proxy = Proxy::start(echo().0);
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, b"before"), b"before");
    proxy.set(Fault::Refuse);
    assert_eq!(rest(&mut stream), (0, Some(ErrorKind::ConnectionReset)));
    let refused = TcpStream::connect(proxy.addr()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(proxy.fired(), 1);

    proxy.set(Fault::None);
    assert_eq!(ask(&mut connect(&proxy), b"after"), b"after");
}

#[test]
fn reset_comes_after_so_many_bytes_of_each_connection() {
    let (server, ends) = echo();
    let proxy = Proxy::start(server);
    let mut old = connect(&proxy);
    assert_eq!(ask(&mut old, b"before"), b"before");
    proxy.set(Fault::ResetAfter { sent_bytes: 1000 });

    for (mut stream, before) in [(old, 6), (connect(&proxy), 0)] {
        stream.write_all(&[1; 1000]).unwrap();
        assert_eq!(rest(&mut stream).1, Some(ErrorKind::ConnectionReset));
        assert!(ends.recv().unwrap() <= before + 1000);
    }
    assert_eq!(proxy.fired(), 2);
    assert_eq!(proxy.sent_bytes(), 2006);
}

#[test]
fn reset_after_nothing_lets_nothing_through() {
    let proxy = Proxy::start(echo().0);
    proxy.set(Fault::ResetAfter { sent_bytes: 0 });
    let mut stream = connect(&proxy);
    assert_eq!(proxy.fired(), 0);
    stream.write_all(b"question").unwrap();
    assert_eq!(rest(&mut stream), (0, Some(ErrorKind::ConnectionReset)));
    assert_eq!((proxy.fired(), proxy.sent_bytes()), (1, 0));
}

#[test]
fn close_comes_in_the_middle_of_an_answer() {
    let proxy = Proxy::start(echo().0);
    proxy.set(Fault::CloseAfter { answered_bytes: 5 });
    let mut stream = connect(&proxy);
    stream.write_all(b"question").unwrap();
    assert_eq!(rest(&mut stream), (5, None));
    assert_eq!((proxy.fired(), proxy.sent_bytes(), proxy.answered_bytes()), (1, 8, 5));
}

#[test]
fn a_server_that_is_not_there_resets() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::start(nobody);
    assert_eq!(rest(&mut connect(&proxy)), (0, Some(ErrorKind::ConnectionReset)));
    assert_eq!(proxy.fired(), 0);
}
