//! Groups of networks.

use crate::document::{Entry, Value};
use crate::form::{Form, Slot};
use ::flows::{Groups, Network};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Longest name of a group, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Names with lists of networks.
pub(super) struct GroupsForm;

impl Form for GroupsForm {
    type Value = BTreeMap<String, Vec<Network>>;

    fn describe(&self) -> String {
        "names with lists of networks".to_owned()
    }

    fn read(&self, slot: &Slot<'_>) -> Option<Self::Value> {
        let Value::Table(table) = slot.value else {
            let (what, name) = (slot.value.describe(), slot.key.name);
            slot.error(format!(
                "{what} is not a table of names and networks. Fix: write {name} = {{ lab = [\"10.0.0.0/8\"] }}"
            ));
            return None;
        };

        let mut groups = BTreeMap::new();
        let mut owners: BTreeMap<Network, &str> = BTreeMap::new();
        for Entry { line, key, item, .. } in &table.entries {
            let wrong = |message: String| slot.reader.error_at(*line, slot.key, message);
            if let Err(message) = name(key) {
                wrong(message);
            }
            let Value::List(items) = &item.value else {
                wrong(format!(
                    "{key}: {} is not a list of networks. Fix: write {key} = [\"10.0.0.0/8\"]",
                    item.value.describe()
                ));
                continue;
            };

            let mut networks = Vec::with_capacity(items.len());
            for item in items {
                match item.value.text().ok().and_then(Network::parse) {
                    Some(network) => networks.push(network),
                    None => wrong(format!(
                        "{key}: {} is not a network. Fix: write \"10.0.0.0/8\", \"2001:db8::/32\" or one address",
                        item.value.describe()
                    )),
                }
            }
            for network in &networks {
                if let Some(other) = owners.insert(*network, key) {
                    wrong(format!("{key}: {network} is in group {other} already. Fix: remove one"));
                }
            }
            groups.insert(key.clone(), networks);
        }
        Some(groups)
    }

    fn show(&self, value: &Self::Value) -> Json {
        let list = |networks: &Vec<Network>| networks.iter().map(Network::to_string).collect();
        let groups: Map<_, _> =
            value.iter().map(|(name, networks)| (name.clone(), list(networks))).collect();
        if groups.is_empty() { Json::Null } else { Json::Object(groups) }
    }
}

/// The characters are limited because filters and keys name groups in brackets, without quotes.
fn name(text: &str) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    match text.chars().count() {
        1..=NAME_CHARS_MAX if text.chars().all(is_name) => Ok(()),
        _ => Err(format!(
            "\"{}\": it is not a group's name. Fix: write 1 to {NAME_CHARS_MAX} letters, digits, `_`, `-` and `.`",
            text.escape_debug()
        )),
    }
}

/// The groups in the engine's form.
pub(super) fn built(groups: &BTreeMap<String, Vec<Network>>) -> Groups {
    let mut built = Groups::default();
    for (name, networks) in groups {
        networks.iter().for_each(|network| built.add(name, *network));
    }
    built
}
