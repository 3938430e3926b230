//! Certificates and keys from files, the same for every end of a connection that uses rustls.
//!
//! The cryptography is that of ring everywhere, named in each configuration: nothing depends on a default of the process. What
//! cannot be read is a [`Trouble`] that names the file and never quotes it, because a part of it may be a key.

#![forbid(unsafe_code)]

use ledger::Trouble;
pub use rustls::Error;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
pub use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, RootCertStore, ServerConfig};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The one provider of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What to say of a configuration that rustls does not take with its own provider.
pub fn defect(error: &Error) -> Trouble {
    Trouble {
        what: format!("TLS cannot be set up: {error}"),
        fix: "report it: it is a defect of this build".to_owned(),
    }
}

/// The certificates of which one must have signed a server's: those of the file `ca`, or of the system. `setting` is what names
/// such a file, for messages.
///
/// # Errors
/// There are none, or the file cannot be read.
pub fn authorities(
    ca: Option<&Path>,
    setting: &str,
) -> Result<Vec<CertificateDer<'static>>, Trouble> {
    let Some(path) = ca else {
        let found = rustls_native_certs::load_native_certs().certs;
        return match found.is_empty() {
            false => Ok(found),
            true => Err(Trouble {
                what: "this system has no certificates of authorities".to_owned(),
                fix: format!("install the package ca-certificates, or name a file with {setting}"),
            }),
        };
    };
    certificates(path)
}

/// The same as the store that rustls searches.
///
/// # Errors
/// As [`authorities`], or the file holds something else than authorities.
pub fn roots(ca: Option<&Path>, setting: &str) -> Result<RootCertStore, Trouble> {
    let mut roots = RootCertStore::empty();
    let found = authorities(ca, setting)?;
    let Some(path) = ca else {
        // Some systems have one that nothing can read among many that are sound.
        roots.add_parsable_certificates(found);
        return Ok(roots);
    };

    for certificate in found {
        roots.add(certificate).map_err(|error| Trouble {
            what: format!("{} holds no certificate of an authority: {error}", path.display()),
            fix: format!("look at it: openssl x509 -noout -text -in {}", path.display()),
        })?;
    }
    Ok(roots)
}

/// All certificates of a file (PEM), at least one.
///
/// # Errors
/// It cannot be read, or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Trouble> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unread(path, &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(error) => Err(unread(path, &error)),
    }
}

/// The first key of a file (PEM).
///
/// # Errors
/// It cannot be read, or has none.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Trouble> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unread(path, &error))
}

/// What to say of a key and a certificate that do not belong together.
pub fn misfit(certificate: &Path, key: &Path, error: &Error) -> Trouble {
    Trouble {
        what: format!("{} does not fit {}: {error}", key.display(), certificate.display()),
        fix: "name the key that the certificate was made with in tls_key".to_owned(),
    }
}

fn unread(path: &Path, error: &pem::Error) -> Trouble {
    let path = path.display();
    // What an error of the parser quotes may be a part of a key.
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

/// What TLS did not like, if that is what an error came from. An error of I/O does not name what it was made of as its source.
pub fn error_in<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
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

/// What fixes a connection that TLS has refused. `unknown_issuer` is for a server's certificate that nobody known has signed.
pub fn advice(error: &Error, unknown_issuer: &'static str) -> &'static str {
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
        ) => unknown_issuer,
        Error::InvalidCertificate(_) => "look at the server's certificate: openssl s_client",
        Error::AlertReceived(_) => {
            "see the server's log: it may ask for a certificate of ours (tls_cert, tls_key)"
        }
        Error::InvalidMessage(_) => "see that the server speaks TLS on this port",
        _ => "see the server's log",
    }
}

/// What a server shows of itself: a certificate with its chain, and its key. Equal if both are, so that a renewed one is told
/// from the former.
#[derive(Clone, Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    config: Arc<ServerConfig>,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.chain == other.chain && self.key == other.key
    }
}

impl Identity {
    /// Reads both files (PEM).
    ///
    /// # Errors
    /// One cannot be read, or they do not belong together.
    pub fn read(certificate: &Path, key: &Path) -> Result<Identity, Trouble> {
        let (chain, key_der) = (certificates(certificate)?, private_key(key)?);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| defect(&error))?
            .with_no_client_auth();
        let mut config = builder
            .with_single_cert(chain.clone(), key_der.clone_key())
            .map_err(|error| misfit(certificate, key, &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Identity { chain, key: Arc::new(key_der), config: Arc::new(config) })
    }

    /// How rustls serves it, as HTTP/1.1.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}
