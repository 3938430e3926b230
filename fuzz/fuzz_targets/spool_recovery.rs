//! Opening and reading a spool whose files hold any bytes must end and not panic. Where a spool was damaged it must add up too:
//! what waits is read, as entries or in gaps, to the last row; and then the spool works.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sink::spool::{Disk, DiskFile, EntryId, Options, Read, Spool, Tally};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use sys::Errno;

const NAMES: [&str; 3] = ["cursor", "0000000000000000.segment", "0000000000000001.segment"];

fuzz_target!(|input: &[u8]| {
    // Any bytes as they are; and the same bytes as changes to whole files, because a fuzzer does not find a CRC by chance.
    let any = Memory::default();
    for (name, bytes) in NAMES.iter().zip(input.chunks(input.len() / 3 + 1)) {
        any.files.borrow_mut().insert((*name).to_owned(), file(bytes.to_vec()));
    }
    if let Ok((mut spool, _)) = Spool::open(any, options()) {
        read_all(&mut spool);
    }

    let damaged = written();
    for change in input.chunks_exact(5) {
        let name = NAMES[usize::from(change[0]) % NAMES.len()];
        let files = damaged.files.borrow();
        let mut bytes = files[name].0.borrow_mut();
        let at = usize::from(u16::from_le_bytes([change[1], change[2]]));
        match change[3] % 4 {
            0 => bytes.truncate(at),
            1 => bytes.extend(vec![change[4]; at % 64]),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= change[4];
                }
            }
        }
    }
    opened(damaged);
});

fn options() -> Options {
    Options { bytes_max: 1 << 20, segment_bytes: 12_000 }
}

/// A spool of two segments.
fn written() -> Memory {
    let disk = Memory::default();
    let (mut spool, _) = Spool::open(disk.clone(), options()).expect("an empty disk");
    for rows in 1..12 {
        let bytes = vec![rows as u8; 60 * rows as usize];
        spool.append(rows, 7, &bytes).expect("there is room");
        spool.sync().expect("memory does not fail");
    }
    disk
}

fn opened(disk: Memory) {
    let (mut spool, recovered) = Spool::open(disk, options()).expect("damage is no other version");
    let (read, last) = read_all(&mut spool);
    assert_eq!(read, recovered.waiting);

    last.into_iter().for_each(|id| spool.acknowledge(id));
    assert!(spool.figures().waiting.is_zero());
    spool.append(3, 30, b"works").expect("there is room");
    spool.sync().expect("memory does not fail");
    let Ok(Some(Read::Entry(entry))) = spool.read() else { panic!("the new entry is not read") };
    assert_eq!((entry.rows, entry.bytes), (3, b"works".as_slice()));
}

/// Reads everything; returns how much that was, and the last id.
fn read_all(spool: &mut Spool<Memory>) -> (Tally, Option<EntryId>) {
    let (mut read, mut last) = (Tally::default(), None::<EntryId>);
    while let Some(next) = spool.read().expect("memory does not fail") {
        let (id, amount) = match next {
            Read::Entry(entry) => {
                let (rows, row_bytes) = (entry.rows.into(), entry.row_bytes);
                (entry.id, Tally { entries: 1, rows, row_bytes })
            }
            Read::Gap(gap) => (gap.id, gap.lost),
        };
        assert!(last.is_none_or(|last| last.number() < id.number()));
        last = Some(id);
        read.entries = read.entries.wrapping_add(amount.entries);
        read.rows = read.rows.wrapping_add(amount.rows);
        read.row_bytes = read.row_bytes.wrapping_add(amount.row_bytes);
    }
    (read, last)
}

#[derive(Clone, Default)]
struct Memory {
    files: Rc<RefCell<BTreeMap<String, MemoryFile>>>,
}

#[derive(Clone)]
struct MemoryFile(Rc<RefCell<Vec<u8>>>);

fn file(bytes: Vec<u8>) -> MemoryFile {
    MemoryFile(Rc::new(RefCell::new(bytes)))
}

impl Disk for Memory {
    type File = MemoryFile;

    fn names(&mut self) -> Result<Vec<String>, Errno> {
        Ok(self.files.borrow().keys().cloned().collect())
    }

    fn create(&mut self, name: &str) -> Result<MemoryFile, Errno> {
        let made = file(Vec::new());
        self.files.borrow_mut().insert(name.to_owned(), made.clone());
        Ok(made)
    }

    fn open(&mut self, name: &str) -> Result<MemoryFile, Errno> {
        self.files.borrow().get(name).cloned().ok_or(Errno::NOENT)
    }

    fn remove(&mut self, name: &str) -> Result<(), Errno> {
        self.files.borrow_mut().remove(name).map(|_| ()).ok_or(Errno::NOENT)
    }

    fn sync(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn salt(&mut self) -> u32 {
        7
    }
}

impl DiskFile for MemoryFile {
    fn len_bytes(&self) -> Result<u64, Errno> {
        Ok(self.0.borrow().len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
        let file = self.0.borrow();
        let rest = file.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        let mut file = self.0.borrow_mut();
        let end = at as usize + bytes.len();
        let len = file.len().max(end);
        file.resize(len, 0);
        file[at as usize..end].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn cut(&self, len_bytes: u64) -> Result<(), Errno> {
        self.0.borrow_mut().resize(len_bytes as usize, 0);
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
}
