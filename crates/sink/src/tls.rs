//! Configuration of TLS connections, the same for every client that uses rustls.
//!
//! The cryptography is always ring, named in each configuration: nothing depends on a process-wide default.

use crate::secret::{TlsIdentity, TlsOptions, TlsVerify};
use ledger::Trouble;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
#[cfg(feature = "tls")]
use rustls::{CertificateError, ClientConnection};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
#[cfg(feature = "tls")]
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Reads the files that the options name, so that a renewed certificate takes effect at the next connection.
pub(crate) fn client_config(options: &TlsOptions) -> Result<ClientConfig, Trouble> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Trouble {
            what: format!("TLS cannot be set up: {error}"),
            fix: "report it: it is a defect of this build".to_owned(),
        })?;

    let builder = match options.verify {
        TlsVerify::On => builder.with_root_certificates(roots(options.ca.as_deref())?),
        TlsVerify::Off => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        }
    };
    match &options.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(TlsIdentity { certificate, key }) => {
            let chain = certificates(certificate)?;
            let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, &error))?;
            builder.with_client_auth_cert(chain, key_der).map_err(|error| Trouble {
                what: format!("{} does not fit {}: {error}", key.display(), certificate.display()),
                fix: "name the key that the certificate was made with in tls_key".to_owned(),
            })
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

fn roots(ca: Option<&Path>) -> Result<RootCertStore, Trouble> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let found = rustls_native_certs::load_native_certs();
        // Some systems have an unparsable certificate among many sound ones.
        roots.add_parsable_certificates(found.certs);
        return match roots.is_empty() {
            false => Ok(roots),
            true => Err(Trouble {
                what: "this system has no certificates of authorities".to_owned(),
                fix: "install the package ca-certificates, or name a file with tls_ca".to_owned(),
            }),
        };
    };

    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| Trouble {
            what: format!("{} holds no certificate of an authority: {error}", path.display()),
            fix: format!("look at it: openssl x509 -noout -text -in {}", path.display()),
        })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Trouble> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unread(path, &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(error) => Err(unread(path, &error)),
    }
}

fn unread(path: &Path, error: &pem::Error) -> Trouble {
    let path = path.display();
    // The parser's error may quote a part of a key.
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "there is none of its kind in it".to_owned(),
        _ => "it is not PEM".to_owned(),
    };
    Trouble {
        what: format!("{path} cannot be read: {why}"),
        fix: format!(
            "see that it is PEM (-----BEGIN …) and that this user may read it: ls -l {path}"
        ),
    }
}

/// The TLS error that an error came from, if any. An I/O error does not return its inner error as its source.
#[cfg(any(feature = "http", feature = "s3"))]
pub(crate) fn error_in<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    use std::io;

    let mut next = Some(error);
    while let Some(at) = next {
        if let Some(found) = at.downcast_ref() {
            return Some(found);
        }
        let of_io = at.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next =
            of_io.map(|inner| inner as &(dyn std::error::Error + 'static)).or_else(|| at.source());
    }
    None
}

/// How to fix a connection that TLS has refused.
#[cfg(feature = "tls")]
pub(crate) fn advice(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "renew the server's certificate; if it is sound, set this host's clock",
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "set this host's clock, or the server's certificate is not to be used yet",
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "connect by a name that the server's certificate has, or give it one with this name",
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "name the authority that signed the server's certificate in tls_ca",
        Error::InvalidCertificate(_) => "look at the server's certificate: openssl s_client",
        Error::AlertReceived(_) => {
            "see the server's log: it may ask for a certificate of ours (tls_cert, tls_key)"
        }
        Error::InvalidMessage(_) => "see that the server speaks TLS on this port",
        _ => "see the server's log",
    }
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
