//! A choice of fields.

use crate::{Field, SocketRecord};

const WORDS: usize = 4;
const _: () = assert!(SocketRecord::FIELDS.len() <= WORDS * 64);

/// Which fields of a socket record to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSet {
    bits: [u64; WORDS],
}

/// A name that is neither a field nor a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no field or group is named `{name}`. Fix: did you mean `{nearest}`?")]
pub struct UnknownField {
    /// The requested name.
    pub name: String,
    /// The most similar known name.
    pub nearest: &'static str,
}

impl FieldSet {
    /// Every field.
    pub const ALL: FieldSet = FieldSet { bits: [u64::MAX; WORDS] };
    /// No field.
    pub const NONE: FieldSet = FieldSet { bits: [0; WORDS] };

    /// Parses names of fields and groups. `all` is every field; a leading `-` removes. Names apply in order; if the first
    /// one removes, it removes from all.
    pub fn from_names<'n>(
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<FieldSet, UnknownField> {
        FieldSet::in_order(names).map(|fields| FieldSet::of(&fields))
    }

    /// The same fields in the order of their first mention; those of a group, or of `all`, in the order of the table.
    pub fn in_order<'n>(
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Vec<&'static Field>, UnknownField> {
        let mut order: Option<Vec<&'static Field>> = None;
        for name in names {
            let (name, taken_away) = match name.strip_prefix('-') {
                Some(name) => (name, true),
                None => (name, false),
            };

            let named = FieldSet::named(name)?;
            // The first name determines the initial list: all fields if it removes some.
            let before = if taken_away { FieldSet::ALL } else { FieldSet::NONE };
            let order = order.get_or_insert_with(|| before.fields().collect());

            if taken_away {
                order.retain(|field| !named.has(field.name));
            } else {
                let before = FieldSet::of(order);
                order.extend(named.without(&before).fields());
            }
        }

        Ok(order.unwrap_or_else(|| FieldSet::ALL.fields().collect()))
    }

    /// These fields.
    pub fn of(fields: &[&Field]) -> FieldSet {
        let mut set = FieldSet::NONE;
        for (index, field) in SocketRecord::FIELDS.iter().enumerate() {
            if fields.iter().any(|chosen| chosen.number == field.number) {
                set.bits[index / 64] |= 1 << (index % 64);
            }
        }
        if set.is_all() { FieldSet::ALL } else { set }
    }

    /// One field, one group, or `all`.
    pub fn named(name: &str) -> Result<FieldSet, UnknownField> {
        if name == "all" {
            return Ok(FieldSet::ALL);
        }

        let mut set = FieldSet::NONE;
        for (index, field) in SocketRecord::FIELDS.iter().enumerate() {
            if field.name == name || field.group == name {
                set.bits[index / 64] |= 1 << (index % 64);
            }
        }

        if set == FieldSet::NONE { Err(unknown(name)) } else { Ok(set) }
    }

    /// The fields of both sets.
    pub fn with(&self, other: &FieldSet) -> FieldSet {
        FieldSet { bits: std::array::from_fn(|at| self.bits[at] | other.bits[at]) }
    }

    /// The fields of `self` that are not in `other`.
    pub fn without(&self, other: &FieldSet) -> FieldSet {
        FieldSet { bits: std::array::from_fn(|at| self.bits[at] & !other.bits[at]) }
    }

    /// Whether it has the field of this name.
    pub fn has(&self, name: &str) -> bool {
        let at = SocketRecord::FIELDS.iter().position(|field| field.name == name);
        at.is_some_and(|index| self.has_index(index))
    }

    /// Whether it has every field.
    pub fn is_all(&self) -> bool {
        (0..SocketRecord::FIELDS.len()).all(|index| self.has_index(index))
    }

    /// The chosen fields in the order of the table.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + '_ {
        let chosen = SocketRecord::FIELDS.iter().enumerate();
        chosen.filter(|(index, _)| self.has_index(*index)).map(|(_, field)| field)
    }

    #[inline(always)]
    pub(crate) fn has_index(&self, index: usize) -> bool {
        self.bits[index / 64] >> (index % 64) & 1 == 1
    }
}

impl std::str::FromStr for FieldSet {
    type Err = UnknownField;

    /// Parses names separated by commas.
    fn from_str(names: &str) -> Result<FieldSet, UnknownField> {
        FieldSet::from_names(names.split(',').map(str::trim).filter(|name| !name.is_empty()))
    }
}

fn unknown(name: &str) -> UnknownField {
    let fields = SocketRecord::FIELDS.iter().map(|field| field.name);
    let groups = SocketRecord::GROUPS.iter().map(|group| group.name);
    let nearest = groups.chain(fields).min_by_key(|known| distance(name, known)).unwrap_or("all");
    UnknownField { name: name.to_owned(), nearest }
}

/// How different two words are: an inserted letter counts 1, a deleted or replaced one 2, so that `rtt` is close to
/// `rtt_us`.
fn distance(from: &str, to: &str) -> usize {
    // One row of the Levenshtein table at a time; `diagonal` is the cell above and to the left.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for a in from.bytes() {
        let mut diagonal = row[0];
        row[0] += 2;
        for (at, b) in to.bytes().enumerate() {
            let replaced = if a == b { diagonal } else { diagonal + 2 };
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 2);
        }
    }

    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        text.parse::<FieldSet>().unwrap().fields().map(|field| field.name).collect()
    }

    #[test]
    fn names_and_groups_are_chosen_in_the_order_of_the_table() {
        assert_eq!(names("rtt_us,cookie"), ["cookie", "rtt_us"]);
        assert_eq!(names("endpoints,-interface_index").len(), 6);
        assert_eq!(names("").len(), SocketRecord::FIELDS.len());
        assert_eq!(names("all"), names(""));
        assert!("-raw".parse::<FieldSet>().unwrap().has("rtt_us"));
        assert!(!"-raw".parse::<FieldSet>().unwrap().has("tcp_info_tail"));
        assert!("all".parse::<FieldSet>().unwrap().is_all());
    }

    #[test]
    fn the_order_of_the_names_is_kept() {
        let order = |text: &str| -> Vec<&str> {
            let fields = FieldSet::in_order(text.split(',')).unwrap();
            fields.iter().map(|field| field.name).collect()
        };
        assert_eq!(order("rtt_us,cookie,rtt_us"), ["rtt_us", "cookie"]);
        assert_eq!(
            order("dst_port,endpoints,-role,src_port,state")[..3],
            ["dst_port", "family", "src_address"]
        );
        assert_eq!(order("cookie,rtt_us,-cookie,cookie"), ["rtt_us", "cookie"]);
        assert_eq!(order("-tcp_info,rtt_us").last(), Some(&"rtt_us"));
        assert_eq!(order("all").len(), SocketRecord::FIELDS.len());
    }

    #[test]
    fn an_unknown_name_is_told_the_nearest() {
        let nearest = |text: &str| text.parse::<FieldSet>().unwrap_err().nearest;
        assert_eq!(nearest("rtt"), "rtt_us");
        assert_eq!(nearest("min_rtt_ms"), "min_rtt_us");
        assert_eq!(nearest("tcpinfo"), "tcp_info");
    }
}
