//! How sinks connect over TLS, the same for every client that uses rustls.

use crate::secret::{TlsIdentity, TlsOptions, TlsVerify};
#[cfg(any(feature = "http", feature = "s3"))]
pub(crate) use ::tls::error_in;
use ::tls::{certificates, misfit, private_key, roots};
use ledger::Trouble;
#[cfg(feature = "tls")]
use rustls::ClientConnection;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
#[cfg(feature = "tls")]
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Reads the files that the options name, so that a renewed certificate takes effect at the next connection.
pub(crate) fn client_config(options: &TlsOptions) -> Result<ClientConfig, Trouble> {
    let provider = ::tls::provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ::tls::defect(&error))?;

    let builder = match options.verify {
        TlsVerify::On => builder.with_root_certificates(roots(options.ca.as_deref(), "tls_ca")?),
        TlsVerify::Off => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        }
    };
    match &options.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(TlsIdentity { certificate, key }) => {
            let chain = certificates(certificate)?;
            builder
                .with_client_auth_cert(chain, private_key(key)?)
                .map_err(|error| misfit(certificate, key, &error))
        }
    }
}

/// The client's end of a connection to `host`, before its handshake. `shown` is the destination's name for messages.
#[cfg(feature = "tls")]
pub(crate) fn client(
    host: &str,
    options: &TlsOptions,
    shown: &str,
) -> Result<ClientConnection, Trouble> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| Trouble {
        what: format!("{shown}: \"{host}\" is not a name that a certificate can have"),
        fix: "connect by a name or an address that stands in the server's certificate".to_owned(),
    })?;
    let config = Arc::new(client_config(options)?);
    ClientConnection::new(config, name).map_err(|error| Trouble {
        what: format!("{shown}: TLS cannot begin: {error}"),
        fix: advice(&error).to_owned(),
    })
}

/// What fixes a connection that TLS has refused.
#[cfg(feature = "tls")]
pub(crate) fn advice(error: &Error) -> &'static str {
    ::tls::advice(error, "name the authority that signed the server's certificate in tls_ca")
}

/// How to fix a failed handshake.
#[cfg(feature = "tls")]
pub(crate) fn cure(error: &io::Error) -> &'static str {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match (of_tls, error.kind()) {
        (Some(error), _) => advice(error),
        (None, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            "see that the server speaks TLS on this port, and its log"
        }
        (None, ErrorKind::TimedOut) => "see that the server speaks TLS on this port",
        (None, _) => "see the server's log",
    }
}

/// Accepts any certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
