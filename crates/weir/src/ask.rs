//! Requests to a running daemon, at its admin address.

mod local;

use crate::exit::Failure;
use crate::run_token;
use config::{AdminConfig, AdminListen};
use ledger::Trouble;
use sink::{Secret, SecretSource};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use ureq::http::header::AUTHORIZATION;
use ureq::http::{StatusCode, Uri};

/// The default admin address of a daemon.
pub(crate) const USUAL: &str = "127.0.0.1:9464";

/// Which daemon a command asks.
#[derive(clap::Args, Clone)]
pub(crate) struct Daemon {
    /// The daemon's admin address, such as `127.0.0.1:9464`, `https://relay.example:9464` or `unix:/run/weir/admin.sock`
    #[arg(long, alias = "url", value_name = "ADDR", env = "WEIR_ADMIN", default_value = USUAL)]
    pub(crate) admin: String,
    #[command(flatten)]
    pub(crate) proof: Proof,
}

/// How a command and a daemon, which may be on another machine, prove to each other who they are.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct Proof {
    /// File with the token that the daemon asks for (its admin.token_file). Without it, that of its run is used, if this user may read it
    #[arg(long, value_name = "FILE", env = "WEIR_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// File with the certificates (PEM) of which one must have signed the daemon's, instead of those of this system
    #[arg(long, value_name = "FILE", env = "WEIR_CA_FILE")]
    ca_file: Option<PathBuf>,
}

impl Daemon {
    /// The daemon at this admin address, which may include a scheme and a path.
    pub(crate) fn at(admin: &str, proof: &Proof) -> Daemon {
        Daemon { admin: admin.to_owned(), proof: proof.clone() }
    }

    /// The ways to ask a daemon of this host with these settings: where it is asked now, its address, and its unix socket.
    pub(crate) fn by(&self, settings: &AdminConfig) -> Vec<Daemon> {
        let token_file = settings.token_file.clone().or_else(|| self.proof.token_file.clone());
        let proof = Proof { token_file, ca_file: self.proof.ca_file.clone() };
        let scheme = if settings.certificate.is_some() { "https" } else { "http" };
        let address = match settings.listen {
            AdminListen::On(addr) if addr.ip().is_unspecified() => {
                Some(format!("{scheme}://localhost:{}", addr.port()))
            }
            AdminListen::On(addr) => Some(format!("{scheme}://{addr}")),
            AdminListen::Off => None,
        };
        let socket = settings.socket.as_ref().map(|path| format!("unix:{}", path.display()));
        let ways = [Some(self.admin.clone()), address, socket];
        ways.into_iter().flatten().map(|admin| Daemon::at(&admin, &proof)).collect()
    }
}

/// Largest answer accepted, enough for a ledger of some 100,000 hops.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Requests a page such as `/ledger` from a daemon, and returns its text.
///
/// # Errors
/// No daemon answers within the time, or the answer is not this page.
pub(crate) fn ask(daemon: &Daemon, page: &str, timeout: Duration) -> anyhow::Result<String> {
    ask_and(daemon, page, timeout, || Ok(()))
}

/// As [`ask`], and calls `begun` once the answer has begun, for example to trigger what the rest of the answer reports.
///
/// # Errors
/// Those of [`ask`] and of `begun`.
pub(crate) fn ask_and(
    daemon: &Daemon,
    page: &str,
    timeout: Duration,
    begun: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let (url, status, body) = exchange(daemon, page, timeout, begun)?;
    if !status.is_success() {
        return Err(refusal(&url, status.as_u16(), &body));
    }
    Ok(body)
}

/// The error for a daemon that answers, and not with what was asked for.
fn refusal(url: &str, status: u16, body: &str) -> anyhow::Error {
    let why = body.lines().next().unwrap_or_default();
    let (failure, fix) = match status {
        401 => (Failure::Permission, "name the file that has its token with --token-file"),
        403 => (Failure::Permission, "run this as root or as the daemon's user"),
        _ => (
            Failure::Unavailable,
            "name the admin address of a daemon of this version with --admin",
        ),
    };
    match why.contains("Fix: ") {
        true => failure.error(format!("{url}: {why}")),
        false => failure.error(format!("{url}: {why}. Fix: {fix}")),
    }
}

/// A daemon's refusal of a request.
pub(crate) struct Refused {
    pub(crate) status: u16,
    /// The reason in the daemon's words, which may be several lines.
    pub(crate) text: String,
}

/// As [`ask`], where a refusal is an answer too.
///
/// # Errors
/// No daemon answers within the time.
pub(crate) fn ask_or_hear_why_not(
    daemon: &Daemon,
    page: &str,
    timeout: Duration,
) -> anyhow::Result<Result<String, Refused>> {
    let (_, status, body) = exchange(daemon, page, timeout, || Ok(()))?;
    Ok(match status.is_success() {
        true => Ok(body),
        false => Err(Refused { status: status.as_u16(), text: body }),
    })
}

/// The URL that was asked, and the status and the text of the answer.
fn exchange(
    daemon: &Daemon,
    page: &str,
    timeout: Duration,
    begun: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<(String, StatusCode, String)> {
    if let Some(path) = local::path_of(&daemon.admin) {
        return local::exchange(path, page, timeout, begun);
    }
    let url = page_url(&daemon.admin, page)?;
    let token = daemon.proof.token_for(&url)?;
    let agent = agent(&url, &daemon.proof, timeout)?;

    let mut request = agent.get(&url);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
    }
    let mut response = request.call().map_err(|error| no_answer(&url, &error))?;
    let status = response.status();
    if status.is_success() {
        begun()?;
    }
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let body = body.map_err(|error| no_answer(&url, &error))?.trim_end().to_owned();
    Ok((url, status, body))
}

/// The address of a daemon's page, for a browser. It has the token behind the `#`, which browsers do not send.
///
/// # Errors
/// The address is wrong, or the token cannot be read or must not go there.
pub(crate) fn link(daemon: &Daemon) -> anyhow::Result<String> {
    let url = page_url(&daemon.admin, "/")?;
    let token = daemon.proof.token_for(&url)?;
    Ok(token.map_or(url.clone(), |token| format!("{url}#token={}", escaped(token.reveal()))))
}

/// A text as a value in an address (`unreserved` of RFC 3986 stays as it is).
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn agent(url: &str, proof: &Proof, timeout: Duration) -> anyhow::Result<ureq::Agent> {
    let config = ureq::Agent::config_builder()
        // The daemon is on this host or a neighbor, so ignore proxies from the environment.
        .proxy(None)
        // A redirect must not take the token elsewhere.
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(timeout));

    #[cfg(feature = "tls")]
    let config = match url.starts_with(HTTPS) {
        true => config.tls_config(proof.tls_config()?),
        false => config,
    };
    #[cfg(not(feature = "tls"))]
    if url.starts_with(HTTPS) || proof.ca_file.is_some() {
        return Err(Failure::Usage.error(
            "this build has no TLS; build with `cargo build --release -p weir --features tls`, or use the image",
        ));
    }
    Ok(config.build().into())
}

impl Proof {
    /// The token, if there is one and it may be sent to `url`.
    fn token_for(&self, url: &str) -> anyhow::Result<Option<Secret>> {
        let Some(path) = &self.token_file else { return Ok(run_token_for(url)) };
        if !url.starts_with(HTTPS) && !is_at_loopback(url) {
            return Err(Failure::Usage.error(format!(
                "the token in {} is not sent to {url}: without TLS everybody on the way could read it. Fix: write https://, or leave out \
                 --token-file and WEIR_TOKEN_FILE",
                path.display()
            )));
        }

        let secret = SecretSource::File(path.clone()).read().map_err(unreadable)?;
        match secret.reveal().bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Some(secret)),
            false => Err(unreadable(Trouble {
                what: format!("{} is no token: it has blanks or more than ASCII", path.display()),
                fix: "name the file that has the token and nothing else".to_owned(),
            })),
        }
    }

    #[cfg(feature = "tls")]
    fn tls_config(&self) -> anyhow::Result<ureq::tls::TlsConfig> {
        use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

        let found = tls::authorities(self.ca_file.as_deref(), "--ca-file").map_err(unreadable)?;
        let roots = found.iter().map(|one| Certificate::from_der(one).to_owned());
        Ok(TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(tls::provider())
            .root_certs(RootCerts::from(roots.collect::<Vec<_>>()))
            .build())
    }
}

fn unreadable(Trouble { what, fix }: Trouble) -> anyhow::Error {
    Failure::InputMissing.error(format!("{what}. Fix: {fix}"))
}

/// The token of the run of the daemon at `url`, if this user may read it.
fn run_token_for(url: &str) -> Option<Secret> {
    let uri = url.parse::<Uri>().ok().filter(|_| is_at_loopback(url))?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    run_token::find(host, uri.port_u16()?)
}

/// Whether a request to this URL stays on this machine. Any name other than `localhost` depends on a name server.
fn is_at_loopback(url: &str) -> bool {
    let uri = url.parse::<Uri>();
    let host = uri.as_ref().ok().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn no_answer(url: &str, error: &ureq::Error) -> anyhow::Error {
    if matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_)) {
        return Failure::Usage
            .error(format!("{url} is not an address ({error}). Fix: write HOST:PORT"));
    }
    #[cfg(feature = "tls")]
    if let Some(error) = refused_by_tls(error) {
        if matches!(error, tls::Error::InvalidMessage(_)) {
            let plain = url.replacen(HTTPS, "http://", 1);
            return Failure::Unavailable
                .error(format!("{url}: the daemon speaks no TLS there. Fix: --admin {plain}"));
        }
        let advice = tls::advice(error, "name the authority that signed it with --ca-file FILE");
        return Failure::Unavailable.error(format!(
            "{url} cannot be trusted, so nothing was sent: {error}. Fix: {advice}"
        ));
    }

    let why = match error {
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    };
    let fix = match is_at_loopback(url) {
        true => NO_DAEMON_HERE,
        false => {
            "see there that it runs and that its [admin] listen is an address that is reached from here: by default only that host itself \
             reaches it"
        }
    };
    Failure::Unavailable.error(format!("no daemon answers at {url}: {why}. Fix: {fix}"))
}

/// What starts a daemon, or leads to another one.
const NO_DAEMON_HERE: &str = "start one with `weir run -c weir.toml`, give `weir relay` --admin 127.0.0.1:9464, or name \
    another admin address with --admin";

#[cfg(feature = "tls")]
fn refused_by_tls(error: &ureq::Error) -> Option<&tls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => tls::error_in(error),
        _ => None,
    }
}

const HTTPS: &str = "https://";

/// The URL of a page on the daemon that `url` names.
fn page_url(url: &str, page: &str) -> anyhow::Result<String> {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some(_) => {
            let message = "a daemon speaks http:// and https:// and no other";
            return Err(Failure::Usage
                .error(format!("--admin {url}: {message}. Fix: write 127.0.0.1:9464")));
        }
        None => ("http", url),
    };
    let host = rest.trim_end_matches('/');
    let host = host.strip_suffix(page).unwrap_or(host);
    if host.contains('@') {
        let message =
            "--admin: a user name or a password has no place in it. Fix: write HOST:PORT alone";
        return Err(Failure::Usage.error(message));
    }
    if url == rest && !host.contains([':', '/']) && host.contains(|c: char| c.is_ascii_alphabetic())
    {
        let message = format!("--admin {url}: it has no port. Fix: write {host}:9464");
        return Err(Failure::Usage.error(message));
    }
    if host.bytes().all(|byte| byte.is_ascii_digit()) {
        let port = if host.is_empty() { "9464" } else { host };
        let message = format!("--admin {url:?}: it has no host. Fix: write 127.0.0.1:{port}");
        return Err(Failure::Usage.error(message));
    }
    Ok(format!("{scheme}://{host}{page}"))
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
        let url = page_url("https://relay.example:9464/", "/ledger").unwrap();
        assert_eq!(url, "https://relay.example:9464/ledger");
        assert!(page_url("ftp://127.0.0.1:9464", "/ledger").is_err());
    }

    #[test]
    fn a_token_goes_where_nobody_else_reads_it() {
        let proof = Proof { token_file: Some("/no/such/token".into()), ca_file: None };
        let said = |url: &str| proof.token_for(url).unwrap_err().to_string();
        for url in [
            "http://127.0.0.1:9464/ledger",
            "http://127.9.9.9/ledger",
            "http://localhost:9464/ledger",
            "http://[::1]:9464/ledger",
            "https://relay.example:9464/ledger",
        ] {
            assert!(said(url).contains("No such file"), "{url}");
        }
        for url in [
            "http://10.0.0.1:9464/ledger",
            "http://relay.example:9464/ledger",
            "http://127.0.0.1@relay.example/ledger",
            "http://localhost.example:9464/ledger",
            "http://[::2]:9464/ledger",
            "http://0.0.0.0:9464/ledger",
        ] {
            assert!(said(url).contains("is not sent to"), "{url}");
        }
        assert!(Proof::default().token_for("http://10.0.0.1/ledger").unwrap().is_none());
    }
}
