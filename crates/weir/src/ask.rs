//! Questions to a running daemon, at its admin address.

use crate::exit::Failure;
use std::time::Duration;

/// Which daemon a command asks.
#[derive(clap::Args)]
pub(crate) struct Daemon {
    /// The daemon's admin address, such as 127.0.0.1:9464
    #[arg(
        long,
        alias = "url",
        value_name = "ADDR",
        env = "WEIR_ADMIN",
        default_value = "127.0.0.1:9464"
    )]
    pub(crate) admin: String,
}

/// Largest answer: a ledger of some 100,000 hops.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Asks the daemon at `url` for a page, such as `/ledger`, and returns its text. `url` is its admin address, with or without scheme and page.
///
/// # Errors
/// No daemon answers within the time, or not with this page.
pub(crate) fn ask(url: &str, page: &str, timeout: Duration) -> anyhow::Result<String> {
    ask_and(url, page, timeout, || Ok(()))
}

/// As [`ask`], and does something once the answer has begun, such as what the rest of it is to tell about.
///
/// # Errors
/// As [`ask`], and those of `begun`.
pub(crate) fn ask_and(
    url: &str,
    page: &str,
    timeout: Duration,
    begun: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let url = page_url(url, page)?;

    let agent: ureq::Agent = ureq::Agent::config_builder()
        // The daemon is on this host or a neighbor: a proxy from the environment is for something else.
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(timeout))
        .build()
        .into();

    let mut response = agent.get(&url).call().map_err(|error| no_answer(&url, &error))?;
    let status = response.status();
    if status.is_success() {
        begun()?;
    }
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let body = body.map_err(|error| no_answer(&url, &error))?.trim_end().to_owned();

    if !status.is_success() {
        let why = body.lines().next().unwrap_or_default();
        return Err(Failure::Unavailable.error(format!("{url} answered {status}: {why}")));
    }
    Ok(body)
}

fn no_answer(url: &str, error: &ureq::Error) -> anyhow::Error {
    if matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_)) {
        return Failure::Usage.error(format!("{url} is not an address ({error}); write HOST:PORT"));
    }
    let why = match error {
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    };
    Failure::Unavailable.error(format!(
        "no daemon answers at {url}: {why}; start one with `weir run -c weir.toml`, give `weir relay` --admin 127.0.0.1:9464, or name \
         another admin address with --admin"
    ))
}

/// The address of a page on the daemon that `url` names.
fn page_url(url: &str, page: &str) -> anyhow::Result<String> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => {
            let message =
                format!("{url} does not start with http://, which is what a daemon speaks");
            return Err(Failure::Usage.error(message));
        }
        None => url,
    };
    let host = rest.trim_end_matches('/');
    let host = host.strip_suffix(page).unwrap_or(host);
    Ok(format!("http://{host}{page}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_scheme_and_path() {
        for url in [
            "127.0.0.1:9464",
            "http://127.0.0.1:9464",
            "http://127.0.0.1:9464/",
            "http://127.0.0.1:9464/ledger",
        ] {
            assert_eq!(page_url(url, "/ledger").unwrap(), "http://127.0.0.1:9464/ledger");
        }
        assert!(page_url("https://127.0.0.1:9464", "/ledger").is_err());
    }
}
