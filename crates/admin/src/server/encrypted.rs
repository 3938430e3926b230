//! The server over TLS.

use super::{Accept, HEAD_TIMEOUT, Served, serve_accepted};
use crate::AdminState;
use crate::access::Peer;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tls::Identity;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Serves like [`serve`](super::serve), over TLS. A client that speaks plain HTTP is told so.
pub async fn serve_tls(
    listener: TcpListener,
    identity: &Identity,
    state: Arc<AdminState>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    serve_accepted(encrypted(listener, identity, None), Served::admin(state), shutdown).await;
    Ok(())
}

/// A listening socket whose connections speak TLS, and in it this protocol, if the client is to be told.
pub(crate) fn encrypted(
    listener: TcpListener,
    identity: &Identity,
    protocol: Option<&[u8]>,
) -> Encrypted {
    let mut config = identity.server_config();
    if let Some(protocol) = protocol {
        Arc::make_mut(&mut config).alpn_protocols = vec![protocol.to_owned()];
    }
    Encrypted { listener, acceptor: TlsAcceptor::from(config) }
}

pub(crate) struct Encrypted {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Accept for Encrypted {
    type Raw = TcpStream;
    type Stream = Channel;

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        Accept::accept(&self.listener).await
    }

    fn open(
        &self,
        stream: TcpStream,
        peer: Peer,
    ) -> impl Future<Output = io::Result<(Channel, Peer)>> + Send + 'static {
        let acceptor = self.acceptor.clone();
        // The same limit as for a head: a client that does not finish a handshake in that time will not finish a head.
        async move {
            let open = shake_hands(acceptor, stream, peer);
            tokio::time::timeout(HEAD_TIMEOUT, open).await.map_err(io::Error::from)?
        }
    }
}

/// First byte of a handshake record (RFC 8446, section 5.1). No HTTP request begins with it.
const HANDSHAKE: u8 = 22;

async fn shake_hands(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: Peer,
) -> io::Result<(Channel, Peer)> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
        return Ok((Channel::Plain(stream), Peer::Unencrypted));
    }
    let stream = acceptor.accept(stream).await?;
    Ok((Channel::Encrypted(Box::new(stream)), peer))
}

/// A connection, encrypted or not.
pub(crate) enum Channel {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Channel::Plain(stream) => Pin::new(stream).poll_read(context, buf),
            Channel::Encrypted(stream) => Pin::new(stream).poll_read(context, buf),
        }
    }
}

impl AsyncWrite for Channel {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Channel::Plain(stream) => Pin::new(stream).poll_write(context, buf),
            Channel::Encrypted(stream) => Pin::new(stream).poll_write(context, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Channel::Plain(stream) => Pin::new(stream).poll_flush(context),
            Channel::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Channel::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Channel::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
