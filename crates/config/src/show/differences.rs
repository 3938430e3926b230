//! The differences between two configurations, in words, for the log of a reload.

use super::{Shown, sections, toml};
use crate::Config;

/// All differences, one entry for each section: changed and added ones in their order, then the removed ones.
pub(crate) fn differences(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (sections(old), sections(new));
    let find = |all: &'_ [Shown<'_>], one: &Shown<'_>| all.iter().position(|other| other.is(one));
    // The sections of a listener come and go with it, without an entry of their own.
    let has_owner = |all: &[Shown<'_>], one: &Shown<'_>| {
        one.names.len() < 2 || all.iter().any(|other| other.names == one.names[..1])
    };

    let present = new.iter().filter_map(|new| match find(&old, new) {
        Some(at) => new.changed(&old[at]),
        None => has_owner(&old, new).then(|| format!("{} added", new.title())),
    });
    let gone = old.iter().filter(|one| find(&new, one).is_none() && has_owner(&new, one));
    present.chain(gone.map(|old| format!("{} removed", old.title()))).collect()
}

impl Shown<'_> {
    /// Whether both are the same section, with the same or different values.
    fn is(&self, other: &Shown<'_>) -> bool {
        self.section.path == other.section.path && self.names == other.names
    }

    /// `[admin]`, `listener in`, `target a`.
    fn title(&self) -> String {
        let kind = self.section.path.rsplit('.').next().unwrap_or_default();
        match self.names.last() {
            Some(name) => format!("{kind} {name}"),
            None => self.section.header.to_owned(),
        }
    }

    /// `listener in: receive_buffer "16MiB" -> "32MiB"`.
    fn changed(&self, old: &Shown<'_>) -> Option<String> {
        let value = |of: &Shown<'_>, name: &str| {
            let found = of.values.iter().find(|(key, _)| key.name == name).map(|(_, value)| value);
            found.filter(|value| !value.is_null()).map_or("not set".to_owned(), toml)
        };

        // If the kind changed, the old values may have other keys.
        let gone = old
            .values
            .iter()
            .filter(|(old, _)| self.values.iter().all(|(key, _)| key.name != old.name));
        let keys = self.values.iter().chain(gone).filter_map(|(key, _)| {
            let (old, new) = (value(old, key.name), value(self, key.name));
            (old != new).then(|| format!("{} {old} -> {new}", key.name))
        });

        let keys: Vec<_> = keys.collect();
        (!keys.is_empty()).then(|| format!("{}: {}", self.title(), keys.join(", ")))
    }
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
