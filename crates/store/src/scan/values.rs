//! One column of some rows.

use rusqlite::types::ValueRef;

/// What a column has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Form {
    #[default]
    Integer,
    Text,
    Blob,
}

/// The values of a column, without those that are absent.
#[derive(Default)]
pub(crate) struct Values {
    pub(super) form: Form,
    /// Of each row: where its value is, from 1; 0 for none. Rows beyond the end have none.
    pub(super) places: Vec<u32>,
    pub(super) integers: Vec<i64>,
    /// Where texts and blobs end in `bytes`.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Values {
    /// Forgets everything.
    pub(super) fn clear(&mut self, form: Form) {
        self.form = form;
        self.places.clear();
        self.integers.clear();
        self.ends.clear();
        self.bytes.clear();
    }

    /// Gives a row a value; one that it had does not count any more.
    pub(super) fn put_integer(&mut self, row: usize, value: i64) {
        self.integers.push(value);
        self.set(row, self.integers.len());
    }

    /// The same for a text or a blob, which `put` appends.
    pub(super) fn put_bytes(&mut self, row: usize, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes);
        self.ends.push(self.bytes.len() as u32);
        self.set(row, self.ends.len());
    }

    fn set(&mut self, row: usize, place: usize) {
        if self.places.len() <= row {
            self.places.resize(row + 1, 0);
        }
        // A batch has some thousand rows.
        self.places[row] = place as u32;
    }

    /// The number that a row has.
    pub(super) fn integer(&self, row: usize) -> Option<i64> {
        self.integers.get(self.place(row)?).copied()
    }

    fn place(&self, row: usize) -> Option<usize> {
        (*self.places.get(row)? as usize).checked_sub(1)
    }

    /// What a row has.
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
