//! One column of some rows.

use rusqlite::types::ValueRef;

/// The type of a column's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Form {
    #[default]
    Integer,
    Text,
    Blob,
}

/// The values of a column, without gaps.
#[derive(Default)]
pub(crate) struct Values {
    pub(super) form: Form,
    /// For each row, the position of its value, from 1; 0 for no value. Rows beyond the end have none.
    pub(super) places: Vec<u32>,
    pub(super) integers: Vec<i64>,
    /// The end of each text or blob in `bytes`.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Values {
    /// Removes all values.
    pub(super) fn clear(&mut self, form: Form) {
        self.form = form;
        self.places.clear();
        self.integers.clear();
        self.ends.clear();
        self.bytes.clear();
    }

    /// Sets the value of a row; an earlier value is replaced.
    pub(super) fn put_integer(&mut self, row: usize, value: i64) {
        self.integers.push(value);
        self.set(row, self.integers.len());
    }

    /// The same for a text or blob, which `put` appends.
    pub(super) fn put_bytes(&mut self, row: usize, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes);
        self.ends.push(self.bytes.len() as u32);
        self.set(row, self.ends.len());
    }

    fn set(&mut self, row: usize, place: usize) {
        if self.places.len() <= row {
            self.places.resize(row + 1, 0);
        }
        // A batch has a few thousand rows.
        self.places[row] = place as u32;
    }

    /// The integer of a row.
    pub(super) fn integer(&self, row: usize) -> Option<i64> {
        self.integers.get(self.place(row)?).copied()
    }

    fn place(&self, row: usize) -> Option<usize> {
        (*self.places.get(row)? as usize).checked_sub(1)
    }

    /// The value of a row.
    pub(crate) fn value(&self, row: usize) -> ValueRef<'_> {
        let Some(place) = self.place(row) else { return ValueRef::Null };
        if self.form == Form::Integer {
            return self
                .integers
                .get(place)
                .map_or(ValueRef::Null, |value| ValueRef::Integer(*value));
        }
        let end = |at: usize| self.ends.get(at).map_or(0, |end| *end as usize);
        let start = place.checked_sub(1).map_or(0, end);
        let bytes = self.bytes.get(start..end(place)).unwrap_or_default();
        match self.form {
            Form::Blob => ValueRef::Blob(bytes),
            _ => ValueRef::Text(bytes),
        }
    }
}
