//! TLS between two ends in one process: a raw public key (RFC 7250) that both ends know, without a certificate.

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, ServerConfig, SignatureScheme,
};
use std::io;
use std::sync::Arc;

/// The prefix of an Ed25519 private key (RFC 8410 section 7); 32 bytes follow. The lab's network has no other hosts, so the key
/// need not be secret.
const KEY_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// For the accepting end.
pub(super) fn server() -> io::Result<quinn::ServerConfig> {
    let key = [KEY_PREFIX.as_slice(), &[1; 32]].concat();
    let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key));
    let key = key.map_err(io::Error::other)?;
    let public = key.public_key().ok_or_else(|| io::Error::other("no public key"))?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    let resolver =
        AlwaysResolvesServerRawPublicKeys::new(Arc::new(CertifiedKey::new(vec![public], key)));

    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    let config = QuicServerConfig::try_from(config).map_err(io::Error::other)?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(config)))
}

/// For the connecting end.
pub(super) fn client() -> io::Result<quinn::ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey(provider())))
        .with_no_client_auth();
    let config = QuicClientConfig::try_from(config).map_err(io::Error::other)?;
    Ok(quinn::ClientConfig::new(Arc::new(config)))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts any key whose possession the other end proves: no one else is on the network.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyKey {
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
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
