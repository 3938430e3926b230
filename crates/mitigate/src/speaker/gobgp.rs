//! GoBGP through its gRPC: `AddPath` and `DeletePath`.
//!
//! Routes are passed in BGP's own encoding (`nlri_binary`, `pattrs_binary`): it is the same in versions 3 and 4, whose route
//! messages differ.

mod bytes_of;

use super::{ANSWER_TIMEOUT, Session, SpeakError, Speaker};
use crate::{Actions, Nlri};
use bytes::Bytes;
use bytes_of::{attributes, family, nlri_bytes};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// gRPC status `UNIMPLEMENTED`: the service does not exist.
const UNIMPLEMENTED: u32 = 12;
/// gRPC status `UNAVAILABLE`.
const UNAVAILABLE: u32 = 14;
/// Largest answer in bytes; GoBGP's has 20.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long to drive the connection to find out whether it is alive.
const PROBE: Duration = Duration::from_millis(1);
/// The services of versions 3 and 4.
const SERVICES: [Service; 2] = [
    Service { name: "apipb.GobgpApi", global_table: 0 },
    Service { name: "api.GoBgpService", global_table: 1 },
];

/// The differences between versions in the calls used here.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Service {
    name: &'static str,
    /// The number of the global table in `TableType`.
    global_table: u8,
}

/// A running `gobgpd`.
pub struct GoBgp {
    /// `HOST:PORT` of its gRPC.
    addr: String,
    runtime: Runtime,
    connection: Option<Connection>,
}

struct Connection {
    requests: SendRequest<Bytes>,
    task: JoinHandle<()>,
    service: Service,
}

/// The status of an answered call.
struct Status {
    code: u32,
    message: String,
}

impl GoBgp {
    /// The speaker at `HOST:PORT`, usually port 50051. Does not connect yet. Without TLS, because it belongs on this host's
    /// loopback.
    ///
    /// # Errors
    /// No descriptor is available.
    pub fn new(addr: &str) -> io::Result<GoBgp> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(GoBgp { addr: addr.to_owned(), runtime, connection: None })
    }

    fn call(&mut self, method: &str, message: &[u8]) -> Result<(), SpeakError> {
        let mut status = self.call_service(method, message)?;
        if status.code == UNIMPLEMENTED
            && let Some(connection) = &mut self.connection
        {
            let [old, new] = SERVICES;
            connection.service = if connection.service == old { new } else { old };
            status = self.call_service(method, message)?;
        }

        match status {
            Status { code: 0, .. } => Ok(()),
            Status { code: UNAVAILABLE, message } => Err(self.lose(message)),
            Status { code, message } => {
                Err(SpeakError::Refused(format!("{message} (gRPC status {code})")))
            }
        }
    }

    fn call_service(&mut self, method: &str, message: &[u8]) -> Result<Status, SpeakError> {
        let Some(connection) = &self.connection else {
            return Err(SpeakError::Lost(format!("{}: not connected", self.addr)));
        };
        let service = connection.service;
        let path = format!("http://{}/{}/{method}", self.addr, service.name);
        let message = [&[0x08, service.global_table][..], message].concat();
        let requests = connection.requests.clone();
        let answer =
            async { tokio::time::timeout(ANSWER_TIMEOUT, ask(requests, &path, &message)).await };

        match self.runtime.block_on(answer) {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(self.lose(error)),
            Err(_) => Err(self.lose(format!("no answer within {ANSWER_TIMEOUT:?}"))),
        }
    }

    fn lose(&mut self, error: impl ToString) -> SpeakError {
        if let Some(connection) = self.connection.take() {
            connection.task.abort();
        }
        SpeakError::Lost(format!("{}: {}", self.addr, error.to_string()))
    }
}

impl Speaker for GoBgp {
    fn name(&self) -> String {
        format!("gobgp://{}", self.addr)
    }

    fn session(&mut self) -> Result<Session, SpeakError> {
        if let Some(connection) = &self.connection {
            self.runtime.block_on(async { tokio::time::sleep(PROBE).await });
            if !connection.task.is_finished() {
                return Ok(Session::Same);
            }
            self.connection = None;
        }

        let addr = self.addr.clone();
        let connect = async {
            let connecting = async {
                let stream = TcpStream::connect(&addr).await.map_err(|error| error.to_string())?;
                h2::client::handshake(stream).await.map_err(|error| error.to_string())
            };
            tokio::time::timeout(ANSWER_TIMEOUT, connecting).await
        };
        let (requests, connection) = match self.runtime.block_on(connect) {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(self.lose(error)),
            Err(_) => return Err(self.lose(format!("no connection within {ANSWER_TIMEOUT:?}"))),
        };

        // The next call finds out why it ended.
        let task = self.runtime.spawn(async { drop(connection.await) });
        self.connection = Some(Connection { requests, task, service: SERVICES[0] });
        Ok(Session::Fresh)
    }

    fn announce(&mut self, nlri: &Nlri, actions: &Actions) -> Result<(), SpeakError> {
        let mut path = path(nlri);
        for attribute in attributes(nlri, actions) {
            path.extend(field(21, &attribute));
        }
        self.call("AddPath", &field(3, &path))
    }

    fn withdraw(&mut self, nlri: &Nlri) -> Result<(), SpeakError> {
        // Always with a path: without one it would delete all routes of the family.
        let is_withdraw = [0x28, 1];
        let path = [&path(nlri)[..], &is_withdraw].concat();
        self.call("DeletePath", &[field(3, &family(nlri)), field(4, &path)].concat())
    }
}

/// The `Path` message of GoBGP's interface, without attributes.
fn path(nlri: &Nlri) -> Vec<u8> {
    [field(9, &family(nlri)), field(20, &nlri_bytes(nlri))].concat()
}

/// A length-delimited field of a protobuf message.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 6);
    varint(&mut out, usize::from(number) << 3 | 2);
    varint(&mut out, value.len());
    out.extend(value);
    out
}

fn varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Makes one unary gRPC call (over HTTP/2: `PROTOCOL-HTTP2.md`).
async fn ask(
    requests: SendRequest<Bytes>,
    path: &str,
    message: &[u8],
) -> Result<Status, Box<dyn std::error::Error>> {
    let request = Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    // Not compressed, then the length.
    let mut body = vec![0];
    body.extend(u32::try_from(message.len())?.to_be_bytes());
    body.extend(message);

    let (answer, mut stream) = requests.ready().await?.send_request(request, false)?;
    stream.send_data(body.into(), true)?;
    let (head, mut body) = answer.await?.into_parts();
    if head.status != http::StatusCode::OK {
        return Err(format!("HTTP status {}", head.status).into());
    }

    let mut read = 0;
    while let Some(chunk) = body.data().await {
        let bytes = chunk?.len();
        read += bytes;
        if read > ANSWER_BYTES_MAX {
            return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes").into());
        }
        body.flow_control().release_capacity(bytes)?;
    }
    // An answer without a message has its status in the response headers.
    let trailers = body.trailers().await?.unwrap_or(head.headers);
    status(&trailers).ok_or_else(|| "an answer without a gRPC status".into())
}

fn status(trailers: &HeaderMap) -> Option<Status> {
    let text = |name| trailers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status")?.parse().ok()?;
    Some(Status { code, message: text("grpc-message").unwrap_or_default().to_owned() })
}
