//! The address of a BGP speaker.

use crate::address::{AddressError, HostPort};
use mitigate::Speaker;
use mitigate::speaker::ExaBgp;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a BGP speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpeakerAddress {
    /// GoBGP's gRPC address. Needs a build with the feature `gobgp`.
    GoBgp(HostPort),
    /// The socket that Weir listens on for ExaBGP.
    ExaBgp(PathBuf),
}

/// Why a text is not the address of a speaker.
#[derive(Debug, thiserror::Error)]
pub enum SpeakerError {
    #[error("it is not a speaker. Fix: write gobgp://HOST:PORT or exabgp:/PATH/TO/SOCKET")]
    Kind,
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl SpeakerAddress {
    /// Opens the connection to the speaker. For ExaBGP it listens now; to GoBGP it connects later.
    ///
    /// # Errors
    /// The socket cannot be created, or this build lacks the feature.
    pub fn open(&self) -> io::Result<Box<dyn Speaker>> {
        match self {
            SpeakerAddress::ExaBgp(path) => {
                let cannot = |error: io::Error| {
                    io::Error::new(
                        error.kind(),
                        format!("cannot listen at {}: {error}", path.display()),
                    )
                };
                Ok(Box::new(ExaBgp::listen(path).map_err(cannot)?))
            }
            SpeakerAddress::GoBgp(addr) => gobgp(addr),
        }
    }
}

#[cfg(feature = "gobgp")]
fn gobgp(addr: &HostPort) -> io::Result<Box<dyn Speaker>> {
    Ok(Box::new(mitigate::speaker::GoBgp::new(&addr.to_string())?))
}

#[cfg(not(feature = "gobgp"))]
fn gobgp(_addr: &HostPort) -> io::Result<Box<dyn Speaker>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this build does not speak to GoBGP"))
}

impl FromStr for SpeakerAddress {
    type Err = SpeakerError;

    fn from_str(text: &str) -> Result<SpeakerAddress, SpeakerError> {
        if let Some(path) = text.strip_prefix("exabgp:").filter(|path| !path.is_empty()) {
            return Ok(SpeakerAddress::ExaBgp(path.into()));
        }
        let addr = text.strip_prefix("gobgp://").ok_or(SpeakerError::Kind)?;
        if cfg!(feature = "gobgp") {
            Ok(SpeakerAddress::GoBgp(addr.parse()?))
        } else {
            Err(AddressError::NotBuilt { kind: "gobgp".to_owned(), feature: "gobgp" }.into())
        }
    }
}

impl fmt::Display for SpeakerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpeakerAddress::GoBgp(addr) => write!(f, "gobgp://{addr}"),
            SpeakerAddress::ExaBgp(path) => write!(f, "exabgp:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        text.parse::<SpeakerAddress>().map_or_else(|e| e.to_string(), |address| address.to_string())
    }

    #[test]
    fn addresses_are_read_and_shown() {
        assert_eq!(said("exabgp:/run/weir/exabgp.sock"), "exabgp:/run/weir/exabgp.sock");
        assert!(said("exabgp:").contains("write gobgp://HOST:PORT or exabgp:"));
        assert!(said("bird:/run/bird.ctl").contains("not a speaker"));
    }

    #[test]
    fn a_build_without_gobgp_says_what_builds_it() {
        let said = said("gobgp://127.0.0.1:50051");
        if cfg!(feature = "gobgp") {
            assert_eq!(said, "gobgp://127.0.0.1:50051");
        } else {
            assert!(said.contains("-p weir --features gobgp"), "{said}");
        }
    }
}
