//! An HTTP server that gives scripted answers and records the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A request as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ String| {
            let (found, _) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(found.len() + 2)
        };
        self.headers.iter().find_map(|line| of(line).map(|start| &line[start..]))
    }
}

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Heads whose body is in pieces and never ends: as fast as the connection takes it, or slowly.
pub(super) const ENDLESS: &str =
    "HTTP/1.1 200 OK\r\nX-Pace: fast\r\nTransfer-Encoding: chunked\r\n\r\n";
pub(super) const TRICKLING: &str =
    "HTTP/1.1 200 OK\r\nX-Pace: slow\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The beginning of the query for a table's columns.
const COLUMNS: &[u8] = b"SELECT name, substring(type";

/// Answers each request with its next answer, and repeats the last one. An empty answer closes the connection, and so does one
/// with `Connection: close`.
pub(crate) struct Fake {
    pub(crate) addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

type Answering = Box<dyn Fn(&Request) -> Option<String> + Send + Sync>;

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    /// In reverse order: the next one is last.
    answers: Mutex<Vec<String>>,
    /// Answers instead, by the request; `None` hangs.
    answering: Option<Answering>,
    open: Mutex<Vec<TcpStream>>,
    is_ended: AtomicBool,
}

impl Fake {
    pub(super) fn start(answers: &[&str]) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let answers = answers.iter().rev().map(|text| (*text).to_owned()).collect();
        Fake::of(listener, Shared { answers: Mutex::new(answers), ..Shared::default() })
    }

    /// A server whose answers depend on the request. It does not answer one for which there is `None`.
    #[cfg(feature = "s3")]
    pub(crate) fn answering(
        answer: impl Fn(&Request) -> Option<String> + Send + Sync + 'static,
    ) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Fake::of(listener, Shared { answering: Some(Box::new(answer)), ..Shared::default() })
    }

    fn of(listener: TcpListener, shared: Shared) -> Fake {
        let (addr, shared) = (listener.local_addr().unwrap(), Arc::new(shared));
        let mut fake = Fake { addr, shared, accepting: None };
        fake.listen(listener);
        fake
    }

    /// Ends like a killed program: closes its connections in whatever state they are.
    pub(super) fn stop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        TcpStream::connect(self.addr).unwrap();
        self.accepting.take().unwrap().join().unwrap();
        for stream in mem::take(&mut *self.shared.open.lock().unwrap()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens again after [`stop`](Fake::stop).
    pub(super) fn restart(&mut self) {
        self.shared.is_ended.store(false, Ordering::Relaxed);
        self.listen(testkit::listen(self.addr));
    }

    fn listen(&mut self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        self.accepting = Some(thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                if shared.is_ended.load(Ordering::Relaxed) {
                    return;
                }
                shared.open.lock().unwrap().push(stream.try_clone().unwrap());
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(stream));
            }
        }));
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(request) = read_request(&mut reader) {
            // Not part of a test's script: the sink queries the columns before an insert, and this server shows none.
            if request.body.starts_with(COLUMNS) {
                if stream.write_all(OK.as_bytes()).is_err() {
                    break;
                }
                continue;
            }
            let answer = match &self.answering {
                Some(answering) => answering(&request),
                None => Some(self.next_answer()),
            };
            self.requests.lock().unwrap().push(request);
            let Some(answer) = answer else { continue };
            let is_last = answer.is_empty() || answer.contains("Connection: close");
            if stream.write_all(answer.as_bytes()).is_err() || is_last {
                break;
            }
            if answer.starts_with(ENDLESS) || answer.starts_with(TRICKLING) {
                let pause = Duration::from_millis(if answer.starts_with(ENDLESS) { 0 } else { 50 });
                while stream.write_all(b"3\r\nxyz\r\n").is_ok() {
                    sys::poll::pause(pause);
                }
            }
        }
        // The other clone of the stream is still open.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Shared {
    fn next_answer(&self) -> String {
        let mut answers = self.answers.lock().unwrap();
        if answers.len() > 1 { answers.pop().unwrap() } else { answers[0].clone() }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut request = Request::default();
    reader.read_line(&mut request.line).ok().filter(|bytes| *bytes > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        match line.trim_end() {
            "" => break,
            line => request.headers.push(line.to_owned()),
        }
    }
    let length = request.header("content-length").unwrap_or("0").parse().unwrap();
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}
