//! The two tables from which follow the types of the structures, how they are read and written, and what they are called.

use super::DataFormat;

/// One structure of records, as the tables declare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its number.
    pub format: DataFormat,
    /// Its name, as the specifications call it.
    pub name: &'static str,
    /// Name and type of each field, in order.
    pub fields: &'static [(&'static str, &'static str)],
}

/// Declares structures: for each a type with a field per row, in the order of the wire.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident $(<$lifetime:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name $(<$lifetime>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl<'a> $name $(<$lifetime>)? {
            /// Name and type of each field, in order.
            pub const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), <$type as Xdr<'a>>::NAME),)*];

            #[inline]
            pub(in crate::sflow) fn read(from: &mut Cursor<'a>) -> Result<Self, Fault> {
                Ok(Self { $($field: Xdr::take(from)?,)* })
            }

            pub(in crate::sflow) fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            /// Calls `visit` with the name and value of each field, in order.
            pub fn each(&self, visit: &mut dyn FnMut(&'static str, Value<'a>)) {
                $(visit(stringify!($field), self.$field.value());)*
            }
        }
    )*};
}

/// Declares an enum of all structures of one number space, by number.
macro_rules! records {
    ($(#[$doc:meta])* $records:ident; $(
        $enterprise:literal : $format:literal $name:literal $variant:ident($type:ident $(<$lifetime:lifetime>)?) $meaning:literal;
    )*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum $records<'a> {
            $(
                #[doc = $meaning]
                $variant($type $(<$lifetime>)?),
            )*
            /// A structure that is not known here.
            Unknown(RawRecord<'a>),
        }

        impl<'a> $records<'a> {
            /// All structures that are known here.
            pub const KINDS: &'static [Kind] = &[$(Kind {
                format: DataFormat::new($enterprise, $format),
                name: $name,
                fields: $type::FIELDS,
            },)*];

            /// Reads a record's fields. What a later edition of its structure added behind them is left.
            ///
            /// # Errors
            /// [`Fault::Short`], [`Fault::Length`], [`Fault::Count`] and [`Fault::AddressType`].
            #[inline]
            pub fn decode(record: &RawRecord<'a>) -> Result<Self, Fault> {
                let from = &mut Cursor::new(record.body);
                match (record.format.enterprise(), record.format.format()) {
                    $(($enterprise, $format) => $type::read(from).map(Self::$variant),)*
                    _ => Ok(Self::Unknown(*record)),
                }
            }

            /// The structure's number.
            #[must_use]
            pub const fn format(&self) -> DataFormat {
                match self {
                    $(Self::$variant(_) => DataFormat::new($enterprise, $format),)*
                    Self::Unknown(record) => record.format,
                }
            }

            /// The structure's name, as the specifications call it; `None` if it is not known here.
            #[must_use]
            pub const fn name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant(_) => Some($name),)*
                    Self::Unknown(_) => None,
                }
            }

            /// Calls `visit` with the name and value of each field, in order. Of a structure that is not known here, with
            /// nothing.
            pub fn each(&self, visit: &mut dyn FnMut(&'static str, Value<'a>)) {
                match self {
                    $(Self::$variant(record) => record.each(visit),)*
                    Self::Unknown(_) => {}
                }
            }

            /// Writes the fields.
            pub(in crate::sflow) fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(record) => record.write(out),)*
                    Self::Unknown(record) => out.extend_from_slice(record.body),
                }
            }
        }
    };
}

pub(super) use {records, structures};
