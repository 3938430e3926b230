//! What differs between two configurations, in words: for the log of a reload.

use super::{Shown, keys};
use crate::config::{Config, ListenerConfig, SinkConfig, TargetConfig};
use keys::SectionKeys;

/// Everything that differs, one entry for each section of the file.
pub(in crate::config) fn differences(old: &Config, new: &Config) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(changed("[admin]", &keys::ADMIN, &old.admin, &new.admin));
    all.extend(changed("[daemon]", &keys::DAEMON, &old.daemon, &new.daemon));
    all.extend(one("[metrics.statsd]", &keys::STATSD, old.statsd.as_ref(), new.statsd.as_ref()));
    let name = |listener: &&ListenerConfig| listener.name.clone();
    for (old, new) in paired(&old.listeners, &new.listeners, name) {
        let name = old.or(new).map(|listener| &listener.name).map_or("", String::as_str);
        all.extend(one(&format!("listener {name}"), &keys::LISTENER, old, new));
        if let (Some(old), Some(new)) = (old, new) {
            all.extend(targets(old, new));
        }
    }
    let (old, new) = (old.sockets.as_ref(), new.sockets.as_ref());
    all.extend(one("[sockets]", &keys::SOCKETS, old, new));
    if let (Some(old), Some(new)) = (old, new) {
        for (old, new) in paired(&old.sinks, &new.sinks, |sink: &&SinkConfig| sink.name.clone()) {
            let name = old.or(new).map_or("", |sink| sink.name.as_str());
            all.extend(one(&format!("sink {name}"), &keys::SINK, old, new));
        }
    }
    all
}

fn targets(old: &ListenerConfig, new: &ListenerConfig) -> Vec<String> {
    let pairs = paired(&old.targets, &new.targets, |target: &&TargetConfig| target.name.clone());
    let pairs = pairs.into_iter().filter_map(|(old, new)| {
        let name = old.or(new).map_or("", |target| target.name.as_str());
        one(&format!("target {name}"), &keys::TARGET, old, new)
    });
    pairs.collect()
}

/// Things of the same name beside each other: the new ones in their order, then those that are gone.
fn paired<'a, T>(
    old: &'a [T],
    new: &'a [T],
    name: impl Fn(&&'a T) -> String,
) -> Vec<(Option<&'a T>, Option<&'a T>)> {
    let find = |all: &'a [T], wanted: &'a T| all.iter().find(|one| name(one) == name(&wanted));
    let present = new.iter().map(|new| (find(old, new), Some(new)));
    let gone = old.iter().filter(|old| find(new, old).is_none()).map(|old| (Some(old), None));
    present.chain(gone).collect()
}

fn one<T: Shown>(
    what: &str,
    keys: &SectionKeys,
    old: Option<&T>,
    new: Option<&T>,
) -> Option<String> {
    match (old, new) {
        (Some(old), Some(new)) => changed(what, keys, old, new),
        (None, Some(_)) => Some(format!("{what} added")),
        (Some(_), None) => Some(format!("{what} removed")),
        (None, None) => None,
    }
}

/// `listener in: receive_buffer "16MiB" -> "32MiB"`.
fn changed(what: &str, keys: &SectionKeys, old: &dyn Shown, new: &dyn Shown) -> Option<String> {
    let value = |shown: &dyn Shown, key: &str| {
        let value = shown.fits(key).then(|| shown.value(key)).flatten();
        value.unwrap_or_else(|| "not set".to_owned())
    };
    let keys = keys.keys.iter().filter_map(|key| {
        let (old, new) = (value(old, key.name), value(new, key.name));
        (old != new).then(|| format!("{} {old} -> {new}", key.name))
    });
    let keys: Vec<_> = keys.collect();
    (!keys.is_empty()).then(|| format!("{what}: {}", keys.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listener: &str, targets: &str) -> Config {
        let text = format!("[[listener]]\nname = \"in\"\nlisten = \":514\"\n{listener}\n{targets}");
        Config::parse(&text, "test").unwrap()
    }

    fn target(name: &str, settings: &str) -> String {
        format!("[[listener.target]]\nname = \"{name}\"\nto = \"10.0.0.1:514\"\n{settings}\n")
    }

    #[test]
    fn every_key_that_differs_is_named() {
        let old = config("", &(target("a", "") + &target("b", "") + &target("c", "")));
        let new = config(
            "receive_buffer = \"32MiB\"",
            &(target("b", "rate_limit = 100\nsample = 10") + &target("c", "") + &target("d", "")),
        );
        assert_eq!(differences(&old, &old), Vec::<String>::new());
        assert_eq!(
            differences(&old, &new),
            [
                "listener in: receive_buffer \"16MiB\" -> \"32MiB\"",
                "target b: sample not set -> 10, sample_by not set -> \"random\", rate_limit not set -> 100",
                "target d added",
                "target a removed",
            ]
        );
    }

    #[test]
    fn sections_come_and_go() {
        let old = config("", &target("a", ""));
        let mut new = old.clone();
        new.daemon.drain_grace = std::time::Duration::from_secs(3);
        new.listeners[0].name = "other".to_owned();
        let expected = [
            "[daemon]: drain_grace \"10s\" -> \"3s\"",
            "listener other added",
            "listener in removed",
        ];
        assert_eq!(differences(&old, &new), expected);
    }
}
