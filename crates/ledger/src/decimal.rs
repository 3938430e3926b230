//! Numbers in JSON. One rule for the whole ledger: every number is a decimal string, because common JSON readers keep only
//! 53 bits of a number.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// One number, signed or not.
pub(crate) fn serialize<T: Display, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Decimal::deserialize(deserializer).map(|Decimal(value)| value)
}

struct Decimal<T>(T);

impl<T: Display> Serialize for Decimal<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Decimal<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Decimal<T>, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map(Decimal).map_err(D::Error::custom)
    }
}

/// A number that may be absent.
pub(crate) mod option {
    use super::{Decimal, Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Decimal).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let value = Option::<Decimal<u64>>::deserialize(deserializer)?;
        Ok(value.map(|Decimal(value)| value))
    }
}

/// A list of numbers.
pub(crate) mod list {
    use super::{Decimal, Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        values: &[u64],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(Decimal))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u64>, D::Error> {
        let values = Vec::<Decimal<u64>>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|Decimal(value)| value).collect())
    }
}

/// A map from names to numbers.
pub(crate) mod map {
    use super::{BTreeMap, Decimal, Deserialize, Deserializer, Serialize, Serializer};
    use crate::figures::Named;

    pub(crate) fn serialize<K: Serialize, S: Serializer>(
        values: &BTreeMap<K, u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(values.iter().map(|(name, value)| (name, Decimal(value))))
    }

    /// Skips names that this version does not know, so that it can read a newer daemon's ledger.
    pub(crate) fn deserialize<'de, K: Named + Ord, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<K, u64>, D::Error> {
        let values = BTreeMap::<String, Decimal<u64>>::deserialize(deserializer)?;
        let known = |(name, Decimal(value)): (String, _)| Some((K::named(&name)?, value));
        Ok(values.into_iter().filter_map(known).collect())
    }
}
