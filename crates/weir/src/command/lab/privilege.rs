//! What the lab may not do here, what forbids it, and what still works.

use crate::exit::Failure;
use lab::network::{Error, Privilege};

const STILL_WORKS: &str = "without it `weir gen` and `weir verify` measure a path that you have";

/// Makes sure that networks can be built. Must be called before the first thread is started, including signal handling.
///
/// # Errors
/// The error names the setting that forbids it, and the fix.
pub(super) fn acquire() -> anyhow::Result<Privilege> {
    Privilege::acquire().map_err(|error| network_error(&error))
}

/// Gives an error of the lab's network its exit code: a missing privilege, or else something that this kernel lacks or does not
/// do.
pub(super) fn network_error(error: &Error) -> anyhow::Error {
    let chain = anyhow::Chain::new(error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    if error.is_permission() {
        let remedy = error.remedy().map_or_else(
            || "run it as root".to_owned(),
            |remedy| format!("run it as root, or have root run `{remedy}`"),
        );
        return Failure::Permission
            .error(format!("the lab may not make networks: {}; {remedy}; {STILL_WORKS}", chain));
    }

    let what = if error.is_unsupported() {
        "this kernel cannot make the lab's network"
    } else {
        "the lab has no network"
    };
    Failure::Unavailable.error(format!("{what}: {}; {STILL_WORKS}", chain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::time::Duration;

    fn check(error: &Error, beginning: &str) {
        let text = network_error(error).to_string();
        assert!(text.starts_with(beginning) && text.ends_with(STILL_WORKS), "{text}");
    }

    #[test]
    fn an_error_says_what_is_missing_and_what_still_works() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        check(
            &Error::Probe(denied()),
            "the lab may not make networks: a socket to try the network with: ",
        );
        let not_ready =
            Error::NotReady { dst: "10.0.0.2:9".parse().unwrap(), waited: Duration::from_secs(10) };
        check(&not_ready, "the lab has no network: no datagram came to 10.0.0.2:9 within 10 s; ");
    }
}
