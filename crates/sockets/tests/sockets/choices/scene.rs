//! The connections on which filters are tested, in two namespaces.

use socket2::{Domain, SockRef, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::fchown;
use std::time::Duration;

/// The purpose of a connection, by its client's port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Subject {
    PolledClose,
    PolledAbort,
    Close,
    Abort,
}

pub(crate) const SUBJECTS: [Subject; 4] =
    [Subject::PolledClose, Subject::PolledAbort, Subject::Close, Subject::Abort];

impl Subject {
    pub(crate) fn port(self) -> u16 {
        21_001 + self as u16
    }
}

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 443);

/// A listener in the namespace that the calling thread is in.
pub(crate) fn listen() -> TcpListener {
    TcpListener::bind(SERVER).unwrap()
}

/// Both ends of a connection that has carried data in both directions, in the namespace that the calling thread is in.
pub(crate) struct Ends {
    subject: Subject,
    client: TcpStream,
    server: TcpStream,
}

impl Ends {
    pub(crate) fn open(subject: Subject, listener: &TcpListener) -> Ends {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        fchown(&socket, Some(1_000), Some(1_000)).unwrap();
        socket.set_mark(7).unwrap();
        socket.set_tcp_congestion(b"reno").unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, subject.port())).into()).unwrap();
        socket.connect(&SERVER.into()).unwrap();
        let (mut client, mut server) = (TcpStream::from(socket), listener.accept().unwrap().0);
        client.write_all(b"ten bytes.").unwrap();
        server.read_exact(&mut [0; 10]).unwrap();
        server.write_all(b"five.").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        Ends { subject, client, server }
    }

    /// The client closes in order or aborts; then the server does, after seeing the end of the stream.
    pub(crate) fn close(self) {
        let Ends { subject, client, mut server } = self;
        if matches!(subject, Subject::PolledAbort | Subject::Abort) {
            SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(client);
        // The end of the stream, or a reset.
        let _ = server.read(&mut [0]);
    }
}
