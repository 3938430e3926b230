//! Access to the admin address: the token that clients need, and the server's certificate.

use crate::exit::Failure;
use admin::{AdminState, Token};
use config::AdminConfig;
use ledger::Trouble;
use sink::SecretSource;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;

/// The contents of the files that `[admin]` names. Equal if nothing in them has changed.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Access {
    pub(super) token: Option<Token>,
    #[cfg(feature = "tls")]
    identity: Option<tls::Identity>,
}

impl Access {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or has the wrong content, or the token would be sent in the clear.
    pub(super) fn read(config: &AdminConfig) -> anyhow::Result<Access> {
        if let Some(why) = config.exposed_token() {
            return Err(Failure::Config.error(format!("admin.token_file: {why}")));
        }
        if let Some(why) = config.exposed_grpc() {
            return Err(Failure::Config.error(format!("admin.grpc: {why}")));
        }
        Ok(Access {
            token: config.token_file.as_deref().map(token).transpose()?,
            #[cfg(feature = "tls")]
            identity: identity(config)?,
        })
    }

    /// Serves the admin pages at an address, with this token and certificate.
    #[cfg(feature = "tls")]
    pub(super) async fn serve(
        &self,
        listener: TcpListener,
        state: Arc<AdminState>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        match &self.identity {
            Some(identity) => admin::serve_tls(listener, identity, state, shutdown).await,
            None => admin::serve(listener, state, shutdown).await,
        }
    }

    #[cfg(not(feature = "tls"))]
    pub(super) async fn serve(
        &self,
        listener: TcpListener,
        state: Arc<AdminState>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        admin::serve(listener, state, shutdown).await
    }

    /// Serves gRPC at an address, with this token and certificate.
    #[cfg(feature = "grpc")]
    pub(super) async fn serve_grpc(
        &self,
        listener: TcpListener,
        state: Arc<AdminState>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        #[cfg(feature = "tls")]
        let served = admin::serve_grpc(listener, self.identity.as_ref(), state, shutdown);
        #[cfg(not(feature = "tls"))]
        let served = admin::serve_grpc(listener, state, shutdown);
        served.await
    }

    /// A configuration with an address for gRPC is refused in a build without it.
    #[cfg(not(feature = "grpc"))]
    pub(super) async fn serve_grpc(
        &self,
        _listener: TcpListener,
        _state: Arc<AdminState>,
        _shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tls")]
fn identity(config: &AdminConfig) -> anyhow::Result<Option<tls::Identity>> {
    let files = config.certificate.as_deref().zip(config.key.as_deref());
    let read = |(certificate, key)| tls::Identity::read(certificate, key);
    files.map(read).transpose().map_err(|trouble| refused("admin.tls_cert", trouble))
}

/// Whether a file has a token.
///
/// # Errors
/// It cannot be read, or has none.
pub(crate) fn check_token(path: &Path) -> anyhow::Result<()> {
    token(path).map(drop)
}

fn token(path: &Path) -> anyhow::Result<Token> {
    let secret = SecretSource::File(path.to_owned()).read();
    let secret = secret.map_err(|trouble| refused("admin.token_file", trouble))?;
    Token::new(secret.reveal()).map_err(|why| {
        let path = path.display();
        let trouble = Trouble {
            what: format!("{path} holds no token: {why}"),
            fix: format!("openssl rand -hex 32 > {path}"),
        };
        refused("admin.token_file", trouble)
    })
}

fn refused(key: &str, Trouble { what, fix }: Trouble) -> anyhow::Error {
    Failure::Config.error(format!("{key}: {what}. Fix: {fix}"))
}
