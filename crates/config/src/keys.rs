//! One table for all keys: name, field, type, form and range, default, and meaning.
//!
//! From such a table, `keys!` generates the struct, its reader, its display and its documentation, so a key is written once.
//!
//! A row such as
//! ```text
//! /// How long it may take.
//! timeout => timeout: Duration = Span(MIN, MAX), default(USUAL);
//! ```
//! becomes the field `timeout`, the constant `Config::timeout` (a [`Key`], for messages), a line of `read`, a line of
//! `check_values`, and a line of `values`. `row!` has what differs between the fallbacks, one arm for each.

use crate::reader::Reader;
use serde_json::Value as Json;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The section's name with dots: `listener.target`.
    pub section: &'static str,
    pub name: &'static str,
    /// What the value looks like, for the documentation and for messages.
    pub form: fn() -> String,
    pub fallback: Fallback,
    /// What it does, for the documentation. Markdown.
    pub meaning: &'static str,
}

impl Key {
    /// The key with its section: `listener.target.rate_limit`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

/// What applies when a key is missing.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// The key is required.
    Required,
    /// This value, in the form it is shown.
    Value(fn() -> Json),
    /// No value, or one derived from other keys; the text says what happens then.
    Absent(&'static str),
}

/// Keys that belong to a section together.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Which things have these keys, such as `UDP targets`. Empty: everything in the section.
    pub of: &'static str,
    pub keys: &'static [Key],
    /// Reads all of them only to report their mistakes.
    pub(crate) check: fn(&Reader<'_>),
}

/// A section of the file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name with dots: `listener.target`.
    pub path: &'static str,
    /// Its header in a file: `[[listener.target]]`.
    pub header: &'static str,
    /// The keys common to all kinds, then the keys of each kind.
    pub tables: &'static [Table],
    /// The last name part of each section nested in this one.
    pub subsections: &'static [&'static str],
}

impl Section {
    /// All keys. A key that several kinds share appears once for each of them.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> {
        self.tables.iter().flat_map(|table| table.keys)
    }

    /// Whether something in this section has a key of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.keys().any(|key| key.name == name)
    }
}

/// Keys with their values; null if not set.
pub(crate) type Values = Vec<(&'static Key, Json)>;

/// All sections, in the order in which the documentation and `weir config show` have them.
pub const SECTIONS: &[Section] = &[
    crate::admin::SECTION,
    crate::daemon::SECTION,
    crate::statsd::SECTION,
    crate::listener::SECTION,
    crate::target::SECTION,
    crate::sockets::SECTION,
    crate::flows::SECTION,
    crate::flows::FLOW_SECTION,
    crate::threshold::SECTION,
    crate::mitigation::SECTION,
    crate::sink::SECTION,
];

/// Generates a struct from a table of keys, and all the code that depends on the keys.
///
/// A row is `/// meaning`, then `key => field: Type = form, fallback;`. The fallback is one of
/// - `required()`, or `required("what to write")`;
/// - `listed("what to write")`: the same for a list. If it is missing, the rest of the section is still checked;
/// - `chosen()`, or `chosen("what to write")`: required; its value is one of several kinds with keys of their own (`values`);
/// - `default(value)`;
/// - `unset("words")`: the field is an `Option`, and the text says what happens without it;
/// - `empty("words")`: the same for a list;
/// - `derived("words", value)`: the value is derived from the required ones.
///
/// A row may end with `where CONDITION, "message"`: unless the condition holds, the key has no effect and setting it is an
/// error.
/// `given { … }` lists fields that no key sets, `with (…)` values that only derived fields need; both are arguments of `read`.
macro_rules! keys {
    (
        $(#[$about:meta])*
        pub struct $Name:ident in $section:literal $(of $of:literal)?
        $(given { $($(#[$given_about:meta])* $given:ident: $Given:ty),+ })?
        $(with ($($with:ident: $With:ty),+))?
        {
            $(
                $(#[doc = $meaning:literal])+
                $key:ident => $field:ident: $Type:ty = $form:expr, $mode:ident($($fallback:tt)*)
                $(where $needs:expr, $useless:literal)?;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $Name {
            $($($(#[$given_about])* pub $given: $Given,)+)?
            $($(#[doc = $meaning])+ pub $field: $Type,)+
        }

        #[expect(non_upper_case_globals, reason = "keys have the names that they have in the file")]
        impl $Name {
            $(
                #[doc = concat!("The key `", stringify!($key), "`.")]
                pub const $key: $crate::keys::Key = $crate::keys::Key {
                    section: $section,
                    name: stringify!($key),
                    form: || $crate::form::Form::describe(&$crate::keys::row!(@form $mode $Type, $form)),
                    fallback: $crate::keys::row!(@fallback $mode($($fallback)*) $crate::keys::row!(@form $mode $Type, $form)),
                    meaning: concat!($($meaning),+).trim_ascii(),
                };
            )+

            pub(crate) const TABLE: $crate::keys::Table = $crate::keys::Table {
                of: concat!($($of)?),
                keys: &[$(Self::$key),+],
                check: Self::check_values,
            };

            /// Reads every key; `None` if a required one has no value, which is reported.
            pub(crate) fn read(
                reader: &$crate::reader::Reader<'_>
                $($(, $given: $Given)+)?
                $($(, $with: $With)+)?
            ) -> Option<$Name> {
                // All keys are read before an early return, so that every mistake is reported at once.
                $(let $field = $crate::keys::row!(@read $mode($($fallback)*) reader, &Self::$key, &$crate::keys::row!(@form $mode $Type, $form));)+

                // Required ones next, and last those derived from them.
                $(let $field = $crate::keys::row!(@need $mode $field);)+
                $(let $field = $crate::keys::row!(@derive $mode($($fallback)*) $field);)+

                // Whether a key has an effect can depend on any other key.
                let this = $Name { $($($given,)+)? $($field),+ };
                $($(
                    let is_useful: fn(&$Name) -> bool = $needs;
                    reader.needs(&Self::$key, is_useful(&this), $useless);
                )?)+
                Some(this)
            }

            // If the kind cannot be read there is no struct to build, but the mistakes in its keys are still reported.
            fn check_values(reader: &$crate::reader::Reader<'_>) {
                $(let _ = reader.value(&Self::$key, &$crate::keys::row!(@form $mode $Type, $form));)+
            }

            /// Every key with its value.
            pub(crate) fn values(&self) -> $crate::keys::Values {
                let mut values = Vec::new();
                $(
                    // A key that would be refused is not shown, so that the output can be read back.
                    let value = $crate::keys::row!(@show $mode &$crate::keys::row!(@form $mode $Type, $form), &self.$field);
                    $(
                        let is_useful: fn(&$Name) -> bool = $needs;
                        let value = if is_useful(self) { value } else { serde_json::Value::Null };
                    )?
                    values.push((&Self::$key, value));
                )+
                $($crate::keys::row!(@more $mode values, self.$field);)+
                values
            }
        }
    };
}

/// What differs between the fallbacks of a row.
macro_rules! row {
    // The form, with its value type checked against the field's type.
    (@form unset $Type:ty, $form:expr) => {
        $crate::form::optional::<$Type, _>($form)
    };
    (@form $mode:ident $Type:ty, $form:expr) => {
        $crate::form::of::<$Type, _>($form)
    };

    // What the documentation gives as the fallback.
    (@fallback required($($missing:literal)?) $form:expr) => {
        $crate::keys::Fallback::Required
    };
    (@fallback listed($missing:literal) $form:expr) => {
        $crate::keys::Fallback::Required
    };
    (@fallback chosen($($missing:literal)?) $form:expr) => {
        $crate::keys::Fallback::Required
    };
    (@fallback default($value:expr) $form:expr) => {
        $crate::keys::Fallback::Value(|| $crate::form::Form::show(&$form, &$value))
    };
    (@fallback $mode:ident($words:literal $(, $value:expr)?) $form:expr) => {
        $crate::keys::Fallback::Absent($words)
    };

    // Reads the value: as an `Option` where the next two steps must know whether it was present.
    (@read required($missing:literal) $reader:expr, $key:expr, $form:expr) => {
        $reader.required($key, $form, Some($missing))
    };
    (@read required() $reader:expr, $key:expr, $form:expr) => {
        $reader.required($key, $form, None)
    };
    (@read listed($missing:literal) $reader:expr, $key:expr, $form:expr) => {
        $reader.required($key, $form, Some($missing)).unwrap_or_default()
    };
    (@read chosen($missing:literal) $reader:expr, $key:expr, $form:expr) => {
        $reader.chosen($key, $form, Some($missing))
    };
    (@read chosen() $reader:expr, $key:expr, $form:expr) => {
        $reader.chosen($key, $form, None)
    };
    (@read default($value:expr) $reader:expr, $key:expr, $form:expr) => {
        $reader.value($key, $form).unwrap_or_else(|| $value)
    };
    (@read empty($words:literal) $reader:expr, $key:expr, $form:expr) => {
        $reader.value($key, $form).unwrap_or_default()
    };
    (@read $mode:ident($($rest:tt)*) $reader:expr, $key:expr, $form:expr) => {
        $reader.value($key, $form)
    };

    // Returns from `read` if nothing can replace the value.
    (@need required $field:ident) => {
        $field?
    };
    (@need chosen $field:ident) => {
        $field?
    };
    (@need $mode:ident $field:ident) => {
        $field
    };

    // Derives a value from the others, which are all known here.
    (@derive derived($words:literal, $value:expr) $field:ident) => {
        $field.unwrap_or_else(|| $value)
    };
    (@derive $mode:ident($($rest:tt)*) $field:ident) => {
        $field
    };

    // The value as shown in TOML and JSON.
    (@show unset $form:expr, $value:expr) => {
        $value
            .as_ref()
            .map_or(serde_json::Value::Null, |value| $crate::form::Form::show($form, value))
    };
    (@show $mode:ident $form:expr, $value:expr) => {
        $crate::form::Form::show($form, $value)
    };

    // The keys of the value's kind.
    (@more chosen $values:ident, $value:expr) => {
        $values.extend($value.values())
    };
    (@more $mode:ident $values:ident, $value:expr) => {};
}

pub(crate) use {keys, row};
