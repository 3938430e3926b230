use serde::{Deserialize, Serialize};

/// Rows are `Name = "label", "cause", "advice";`.
macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $cause:literal, $advice:literal;)+) => {
        /// What a store that answered has against rows that it will never take. Whatever somebody can mend without changing the
        /// rows (credentials, a missing topic or table, an outage) is retried and no rejection.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum RejectClass { $($(#[$doc])* $name,)+ }

        impl RejectClass {
            /// Every class.
            pub const ALL: &'static [RejectClass] = &[$(RejectClass::$name,)+];
            /// Number of classes.
            pub const COUNT: usize = RejectClass::ALL.len();

            /// The label value in metrics and JSON.
            pub const fn label(self) -> &'static str {
                match self { $(RejectClass::$name => $label,)+ }
            }

            /// What happened, as the end of the sentence "lost because …".
            pub const fn cause(self) -> &'static str {
                match self { $(RejectClass::$name => $cause,)+ }
            }

            /// The setting or command that would help.
            pub const fn advice(self) -> &'static str {
                match self { $(RejectClass::$name => $advice,)+ }
            }
        }
    };
}

classes! {
    /// The message or batch is above a limit of the store.
    TooLarge = "too_large",
        "the store takes no message or batch as large as that",
        "lower batch_size of the sink, or raise the store's limit (message.max.bytes, max_payload)";
    /// The table or the registered schema does not fit the rows.
    Schema = "schema",
        "the store's table or schema does not fit the records",
        "bring the table or schema up to date with the one that this version of Weir prints";
    /// The store could not read the rows, or a value is none that it takes.
    Invalid = "invalid",
        "the store could not read the records, or one of their values",
        "look at the sink's last trouble in `weir ledger`, and set the format that the store expects";
    /// A rule of the store that is about the rows, not about who sends them.
    Denied = "denied",
        "a rule of the store forbids these records",
        "change that rule of the store (quota, policy, partition), or filter the records out";
    /// What the rows themselves name is not there: a partition, a subject.
    NotFound = "not_found",
        "the store has no place of the name that the records ask for",
        "make the subject, partition or path that the sink's address and key lead to";
    /// Any other answer that says no for ever.
    Other = "other",
        "the store refused the records for a reason of its own",
        "look at the sink's last trouble in `weir ledger`";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_json_names_are_the_same() {
        for class in RejectClass::ALL {
            let json = serde_json::to_string(class).unwrap();
            assert_eq!(json, format!("\"{}\"", class.label()));
        }
    }
}
