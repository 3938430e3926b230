//! What unknown users do not see, and the words about it.

use admin::Hidden;
use config::{
    AdminConfig, AdminListen, Config, Namespaces, Sink, SinkConfig, SocketsConfig, Source,
};
use std::net::SocketAddr;

/// The refusal for a request over TCP that asks about sockets of namespaces other than the daemon's own. `None` if the daemon
/// collects only from its own namespace, whose sockets every process in it can list.
pub(crate) fn sockets_elsewhere(config: &Config) -> Option<String> {
    let sockets = config.sockets.as_ref()?;
    (sockets.namespaces != Namespaces::Own)
        .then(|| only_for_known(&config.admin, FOREIGN_SOCKETS, "sockets"))
}

/// What is shown only to known users.
pub(crate) const FOREIGN_SOCKETS: &str = "sockets of other network namespaces are";
#[cfg(feature = "store")]
pub(crate) const CONTENTS: &str = "what was received, and events, are";

/// The refusal for unknown users who ask for these, at a page of this name: both ways to be known.
pub(crate) fn only_for_known(admin: &AdminConfig, these: &str, page: &str) -> String {
    let who = format!(
        "{these} shown to root, to this daemon's user and to those of admin.socket_users; and to those who have the token of \
         admin.token_file"
    );
    match &admin.socket {
        Some(path) => {
            format!("{who}. Fix: curl --unix-socket {} http://localhost/{page}", path.display())
        }
        None => format!("{who}. Fix: {}", link_command(listen_address(admin))),
    }
}

/// Whether a sink is a store that holds more than figures.
fn stores_contents(sink: &SinkConfig) -> bool {
    let is_more = |source: &Source| !matches!(source, Source::Sockets | Source::Flows);
    matches!(sink.to, Sink::Store(_)) && sink.from.iter().any(is_more)
}

/// The command that prints the link to the page of a daemon at this address that shows everything.
pub(crate) fn link_command(addr: Option<SocketAddr>) -> String {
    match addr.filter(|addr| addr.port() != 0 && addr.to_string() != crate::ask::USUAL) {
        Some(addr) => format!("weir ui --admin {addr}"),
        None => "weir ui".to_owned(),
    }
}

/// What this configuration keeps from unknown users over TCP; `None` if nothing, or with a token, without which nobody sees
/// anything.
pub(crate) fn hidden(config: &Config) -> Option<Hidden> {
    if config.admin.token_file.is_some() {
        return None;
    }
    let is_foreign = |sockets: &SocketsConfig| sockets.namespaces != Namespaces::Own;
    let sockets = config.sockets.as_ref().is_some_and(is_foreign);
    let what = [
        (sockets, "sockets of other network namespaces"),
        (config.sinks.iter().any(stores_contents), "payloads and events in the history"),
    ];
    let what: Vec<&str> = what.into_iter().filter_map(|(is, name)| is.then_some(name)).collect();
    let (what, fix) = (what.join("; "), link_command(listen_address(&config.admin)));
    (!what.is_empty()).then_some(Hidden { what, fix })
}

fn listen_address(admin: &AdminConfig) -> Option<SocketAddr> {
    match admin.listen {
        AdminListen::On(addr) => Some(addr),
        AdminListen::Off => None,
    }
}
