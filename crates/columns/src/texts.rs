//! Texts and bytes of one field: each different one once, while there are few of them.

use ::parquet::data_type::ByteArray;
use ::record::{Cell, Kind};
use std::collections::HashMap;

/// Texts of a dictionary, with their lengths, at most. It holds the names of a host's services, or some thousands of addresses: of columns
/// with more, most rows have one of their own.
const DICTIONARY_MAX_BYTES: usize = 128 << 10;

/// What an entry of the map takes, besides its bytes.
const KNOWN_BYTES: usize = 64;

/// The values of a column that are texts, without gaps.
#[derive(Default)]
pub(crate) struct Texts {
    /// The different ones, one after another.
    bytes: Vec<u8>,
    /// Where each begins and ends.
    spans: Vec<(u32, u32)>,
    /// Of each value, which text it is.
    indices: Vec<u32>,
    /// What the last value was in its row, before it became text, and which text it became.
    last: Vec<u8>,
    last_index: Option<u32>,
    /// Which text a value becomes, by what it is in its row. `None`: there are too many.
    known: Option<HashMap<Box<[u8]>, u32>>,
}

impl Texts {
    /// For values of this kind. Payloads are not looked for: hardly two are the same.
    pub(crate) fn of(kind: Kind) -> Texts {
        let repeat = !matches!(kind, Kind::Bytes | Kind::Data);
        Texts { known: repeat.then(HashMap::new), ..Texts::default() }
    }

    /// Takes a value. A number is none.
    #[inline]
    pub(crate) fn push(&mut self, cell: &Cell<'_>) {
        match cell {
            Cell::Number(_) => {}
            Cell::Bytes(bytes) => self.add(bytes, cell),
            Cell::Address(address) => self.add(address.as_slice(), cell),
            Cell::Tags(_) => {
                let mut text = Vec::new();
                cell.put_text(&mut text);
                self.add(&text, &Cell::Bytes(&text));
            }
        }
    }

    #[inline]
    fn add(&mut self, raw: &[u8], cell: &Cell<'_>) {
        if let Some(last) = self.last_index
            && self.last == raw
        {
            return self.indices.push(last);
        }
        let index = self.index_of(raw, cell);
        self.indices.push(index);
        self.last_index = Some(index);
        self.last.clear();
        self.last.extend_from_slice(raw);
    }

    fn index_of(&mut self, raw: &[u8], cell: &Cell<'_>) -> u32 {
        if let Some(known) = &self.known
            && let Some(&index) = known.get(raw)
        {
            return index;
        }

        // A row group ends long before 4 GiB.
        let (index, start) = (self.spans.len() as u32, self.bytes.len() as u32);
        cell.put_text(&mut self.bytes);
        self.spans.push((start, self.bytes.len() as u32));
        if self.bytes.len() + self.spans.len() * 4 > DICTIONARY_MAX_BYTES {
            self.known = None;
        }
        if let Some(known) = &mut self.known {
            known.insert(raw.into(), index);
        }
        index
    }

    /// Takes away the last value, and its text with it if no other has the same.
    pub(crate) fn pop(&mut self) {
        let Some(index) = self.indices.pop() else { return };
        self.last_index = None;
        if index as usize + 1 < self.spans.len() || self.indices.contains(&index) {
            return;
        }
        if let Some((start, _)) = self.spans.pop() {
            self.bytes.truncate(start as usize);
        }
        if let Some(known) = &mut self.known {
            known.retain(|_, other| *other != index);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let known =
            self.known.as_ref().map_or(0, |known| self.bytes.len() + known.len() * KNOWN_BYTES);
        self.bytes.len() + self.spans.len() * 8 + self.indices.len() * 4 + known
    }

    /// Of each value, its place in the dictionary, and the texts of that; `None` if it has none.
    pub(crate) fn dictionary(&self) -> Option<(&[u32], impl Iterator<Item = &[u8]> + Clone)> {
        let text = |span: &(u32, u32)| self.bytes.get(span.0 as usize..span.1 as usize);
        self.known.as_ref().map(|_| (self.indices.as_slice(), self.spans.iter().filter_map(text)))
    }

    /// Every value, one by one.
    pub(crate) fn into_values(self) -> Vec<ByteArray> {
        let all = ByteArray::from(self.bytes);
        let text = |index: u32| {
            let &(start, end) = self.spans.get(index as usize)?;
            Some(all.slice(start as usize, (end - start) as usize))
        };
        self.indices.into_iter().filter_map(text).collect()
    }
}
