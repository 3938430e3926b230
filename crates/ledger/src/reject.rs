use serde::{Deserialize, Serialize};

/// Rows are `Name = "label", "cause", "advice";`.
macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $cause:literal, $advice:literal;)+) => {
        /// Why a store refused rows permanently. What can be fixed without changing the rows (credentials, a missing topic or
        /// table, an outage) is retried instead.
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
        "a message or batch was larger than the store takes",
        "lower batch_size of the sink, or raise the store's limit (message.max.bytes, max_payload)";
    /// The table or the registered schema does not fit the rows.
    Schema = "schema",
        "the store's table or schema does not fit the records",
        "update the table or schema to the one of this version of Weir";
    /// The store could not read the rows, or a value is none that it takes.
    Invalid = "invalid",
        "the store could not read the records, or one of their values",
        "see what the store answered (the sink's trouble in `weir ledger`), and set the format that it expects";
    /// A rule of the store about the rows, not about who sends them.
    Denied = "denied",
        "a rule of the store forbids these records",
        "change that rule of the store (quota, policy, partition), or filter the records out";
    /// A partition, subject or path that the rows themselves name does not exist.
    NotFound = "not_found",
        "the subject, partition or path that the records name does not exist in the store",
        "create it in the store, or correct the sink's address and key";
    /// Any other permanent refusal.
    Other = "other",
        "the store refused the records for a reason that Weir does not know",
        "see what the store answered: the sink's trouble in `weir ledger`";
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
