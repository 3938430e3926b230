//! The collector's side of the helper, with helpers that are missing, hang, are full or lie, and without any privilege.

use sockets::helper::{Allowed, Remote, serve};
use sockets::{Access, Found, Hears, Scope};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::Errno;
use sys::namespace::{self, Error};
use sys::pass::{Channel, Listener};
use sys::poll::EventFd;

/// A path with nothing at it, which is removed when dropped.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> SocketPath {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-helper-{}-{number}.sock", std::process::id());
        SocketPath(std::env::temp_dir().join(name))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A helper in this process, with this process's rights.
struct Helper {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    fn start(path: &SocketPath) -> Helper {
        let listener = Listener::bind(&path.0).unwrap();
        let stop = Arc::new(EventFd::new().unwrap());
        let stops = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            serve(&listener, &Allowed::default(), stops.as_fd(), |uid| panic!("{uid}")).unwrap();
        });
        Helper { stop, thread: Some(thread) }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop.wake();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn own_only(found: &[Found]) -> bool {
    found.len() == 1 && found[0].id == namespace::own().unwrap()
}

#[test]
fn the_own_namespace_needs_no_helper() {
    let path = SocketPath::new();
    let mut remote = Remote::new(&path.0);
    let mut found = Vec::new();
    remote.discover(&Scope::Own, &mut found).unwrap();
    assert!(own_only(&found), "{found:?}");
    remote.open(0).unwrap();
    assert_eq!(remote.open(1).unwrap_err(), Error::Gone);
    let error = remote.discover(&Scope::All, &mut found).unwrap_err();
    assert!(error.to_string().contains("is not there"), "{error}");
    assert!(own_only(&found), "{found:?}");
    remote.open(0).unwrap();
    remote.events(Hears::Own, 65_536).unwrap();
    assert!(remote.events(Hears::All, 65_536).is_err());
    remote.discover(&Scope::Named(vec!["own".to_owned()]), &mut found).unwrap_err();
    assert!(found.is_empty(), "nobody knows what it is called");
    assert!(Remote::connect(&path.0).is_err());
}

#[test]
fn a_helper_that_ends_and_comes_again_is_found_again() {
    let path = SocketPath::new();
    let helper = Helper::start(&path);
    let mut remote = Remote::connect(&path.0).unwrap();
    let mut found = Vec::new();
    remote.discover(&Scope::All, &mut found).unwrap();
    let all = found.len();
    assert_eq!(found[0].id, namespace::own().unwrap());
    drop(helper);
    if all > 1 {
        assert!(matches!(remote.open(1), Err(Error::Syscall { .. })));
        assert!(remote.nsid(1).is_err());
    }
    remote.open(0).unwrap();
    remote.discover(&Scope::All, &mut found).unwrap_err();
    assert!(own_only(&found), "{found:?}");
    std::fs::remove_file(&path.0).unwrap();
    // Between two polls this time, so nothing fails in between.
    for _ in 0..2 {
        let helper = Helper::start(&path);
        remote.discover(&Scope::All, &mut found).unwrap();
        assert_eq!(found[0].id, namespace::own().unwrap());
        drop(helper);
        std::fs::remove_file(&path.0).unwrap();
    }
}

#[test]
fn a_user_who_connects_again_and_again_loses_the_connection_unused_for_longest() {
    let path = SocketPath::new();
    let _helper = Helper::start(&path);
    let mut first = Remote::connect(&path.0).unwrap();
    let mut found = Vec::new();
    first.discover(&Scope::All, &mut found).unwrap();
    let mut others: Vec<_> = (0..20).map(|_| Remote::connect(&path.0).unwrap()).collect();
    for other in &mut others {
        other.discover(&Scope::All, &mut found).unwrap();
    }
    // It reconnects by itself.
    first.discover(&Scope::All, &mut found).unwrap();
    assert_eq!(found[0].id, namespace::own().unwrap());
}

/// What a fake helper does with each request.
type Behave = fn(&Channel);

/// Accepts clients one after another and answers every request as told, until the last client is gone.
fn fake(path: &SocketPath, behave: Behave) -> JoinHandle<()> {
    let listener = Listener::bind(&path.0).unwrap();
    thread::spawn(move || {
        let channel = listener.accept().unwrap();
        let (mut buffer, mut descriptors) = ([0; 64], Vec::new());
        while channel.receive(&mut buffer, &mut descriptors).is_ok_and(|message| message.len > 0) {
            behave(&channel);
        }
    })
}

#[track_caller]
fn check_lie(behave: Behave) {
    let path = SocketPath::new();
    let fake = fake(&path, behave);
    let mut remote = Remote::new(&path.0);
    let mut found = Vec::new();
    let began = Instant::now();
    assert!(remote.discover(&Scope::All, &mut found).is_err());
    assert!(own_only(&found), "{found:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
    drop(remote);
    fake.join().unwrap();
}

#[test]
fn lies_are_errors() {
    check_lie(|channel| channel.send(b"\xff nonsense", &[]).unwrap());
    check_lie(|channel| channel.send(b"", &[]).unwrap());
    check_lie(|channel| channel.send(&[1; 17], &[]).unwrap());
    // More namespaces than it lists.
    check_lie(|channel| {
        let mut scanned = vec![1];
        scanned.extend([0; 12]);
        scanned.extend(5_u32.to_ne_bytes());
        let _ = channel.send(&scanned, &[]);
        let _ = channel.send(&[2], &[]);
    });
    // A descriptor where none belongs, and an error without a message.
    check_lie(|channel| {
        let file = File::open("/dev/null").unwrap();
        channel.send(&[3], &[file.as_fd()]).unwrap();
    });
    check_lie(|channel| channel.send(&vec![2; 40_000], &[]).unwrap());
}

#[test]
fn what_is_passed_must_be_the_socket_that_was_asked_for() {
    let path = SocketPath::new();
    let fake = fake(&path, |channel| {
        static REQUESTS: AtomicU32 = AtomicU32::new(0);
        let mut answer = vec![1];
        match REQUESTS.fetch_add(1, Ordering::Relaxed) {
            0 => {
                answer.extend([0; 12]);
                answer.extend(1_u32.to_ne_bytes());
            }
            1 => {
                // A namespace other than this one.
                answer = vec![2];
                answer.extend([0; 21]);
            }
            2 => answer = vec![3],
            _ => {
                let file = File::open("/dev/null").unwrap();
                return channel.send(&[3], &[file.as_fd()]).unwrap();
            }
        }
        channel.send(&answer, &[]).unwrap();
    });
    let mut remote = Remote::new(&path.0);
    let mut found = Vec::new();
    remote.discover(&Scope::All, &mut found).unwrap();
    assert_eq!(found.len(), 2);
    for _ in 0..2 {
        assert!(matches!(remote.open(1), Err(Error::Syscall { .. })));
    }
    assert_eq!(
        remote.events(Hears::All, 4_096).unwrap_err(),
        Errno::NONET,
        "a helper elsewhere hears others' closes as its own"
    );
    drop(remote);
    fake.join().unwrap();
}

#[test]
fn a_helper_that_hangs_costs_a_limited_time() {
    let path = SocketPath::new();
    let listener = Listener::bind(&path.0).unwrap();
    let mut remote = Remote::new(&path.0);
    let mut found = Vec::new();
    let began = Instant::now();
    let error = remote.discover(&Scope::All, &mut found).unwrap_err();
    assert!(error.to_string().contains("does not answer"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(own_only(&found), "{found:?}");
    // It is not asked again until the next discovery.
    let began = Instant::now();
    assert!(remote.open(1).is_err() && remote.nsid(1).is_err());
    assert!(began.elapsed() < Duration::from_secs(1));
    drop(listener);
}
