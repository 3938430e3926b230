//! Every number ever assigned to a field or a word. A line stays forever, even when its field is gone.

use crate::{
    CounterRecord, DatagramRecord, Field, FlowRecord, FlowTotals, Kind, PollTotals, SocketRecord,
    TOTALS_NUMBER, WORD_TABLES,
};
use std::collections::HashMap;

/// The list, extended by what is new in the table; an error if the two contradict each other.
pub(crate) fn extend(given: &str) -> Result<String, String> {
    let mut lines: Vec<String> = given.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        lines.push("# Every number ever given: message, number, name, type. A line is never changed or taken away.".to_owned());
    }
    let mut names = HashMap::new();
    let mut numbers = HashMap::new();
    for line in lines.iter().filter(|line| !line.starts_with('#')) {
        let (message, number, name, rest) =
            parts(line).ok_or_else(|| format!("what is `{line}`?"))?;
        let whole = format!("{message} {number} {name} {rest}");
        names.insert(format!("{message} {name}"), whole.clone());
        if let Some(other) = numbers.insert(format!("{message} {number}"), whole) {
            return Err(format!("one number twice: `{line}` and `{other}`"));
        }
    }
    for line in current() {
        let (message, number, name, _) = parts(&line).expect("made of four words");
        let by_name = names.get(&format!("{message} {name}"));
        let by_number = numbers.get(&format!("{message} {number}"));
        match (by_name, by_number) {
            (Some(same), Some(_)) if *same == line => {}
            (None, None) => {
                numbers.insert(format!("{message} {number}"), line.clone());
                lines.push(line);
            }
            (old, other) => return Err(format!("`{line}` contradicts {:?}", old.or(other))),
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// Numbers and names that were once assigned and are no longer in the table.
pub(crate) fn retired(message: &str) -> Vec<(u32, String)> {
    let list = include_str!("../../tests/numbers.txt");
    let current = current();
    let gone = list
        .lines()
        .filter(|line| !line.starts_with('#') && !current.iter().any(|now| now == line));
    gone.filter_map(parts)
        .filter(|(of, ..)| *of == message)
        .filter_map(|(_, number, name, _)| Some((number.parse().ok()?, name.to_owned())))
        .collect()
}

fn current() -> Vec<String> {
    let mut lines = fields("SocketRecord", SocketRecord::FIELDS);
    lines.push(format!("SocketRecord {TOTALS_NUMBER} totals PollTotals"));
    lines.extend(fields("PollTotals", PollTotals::FIELDS));
    for (number, name, kind) in super::proto::DATAGRAM {
        lines.push(format!("Datagram {number} {name} {}", kind.replace(' ', "_")));
    }
    lines.extend(fields("DatagramRecord", DatagramRecord::FIELDS));
    lines.push("SocketRecords 1 record repeated_SocketRecord".to_owned());
    lines.push("SocketRecords 2 datagram repeated_DatagramRecord".to_owned());
    lines.extend(fields("FlowRecord", FlowRecord::FIELDS));
    lines.extend(fields("CounterRecord", CounterRecord::FIELDS));
    lines.extend(fields("FlowTotals", FlowTotals::FIELDS));
    lines.push("SocketRecords 4 flow repeated_FlowRecord".to_owned());
    lines.push("SocketRecords 5 counters repeated_CounterRecord".to_owned());
    lines.push("SocketRecords 6 flow_totals repeated_FlowTotals".to_owned());
    for words in WORD_TABLES {
        lines.extend(
            words.entries.iter().map(|(value, word)| format!("{} {value} {word} word", words.name)),
        );
    }
    lines
}

fn fields(message: &str, fields: &[Field]) -> Vec<String> {
    fields
        .iter()
        .map(|field| {
            let kind = match field.kind {
                Kind::Word(words) => words.name.to_owned(),
                kind => format!("{kind:?}").to_lowercase(),
            };
            format!("{message} {} {} {kind}", field.number, field.name)
        })
        .collect()
}

fn parts(line: &str) -> Option<(&str, &str, &str, &str)> {
    let mut words = line.split(' ');
    Some((words.next()?, words.next()?, words.next()?, words.next()?))
}

/// In a mixed stream a field must mean the same in every table.
#[test]
fn what_the_tables_of_one_stream_share_is_the_same() {
    let tables = [
        SocketRecord::FIELDS,
        DatagramRecord::FIELDS,
        FlowRecord::FIELDS,
        CounterRecord::FIELDS,
        FlowTotals::FIELDS,
    ];
    let mut known = HashMap::new();
    for field in tables.into_iter().flatten() {
        let what = (field.name, field.kind);
        assert_eq!(known.entry(field.number).or_insert(what), &what);
        assert_ne!(field.number, TOTALS_NUMBER);
    }
    for table in tables {
        assert_eq!(table[0].number, crate::KIND_NUMBER);
    }
}

#[test]
fn a_number_that_changes_is_found() {
    let whole = extend("").unwrap();
    assert_eq!(extend(&whole).as_ref(), Ok(&whole));
    assert!(
        extend(&whole.replace("SocketRecord 10 rtt_us u32", "SocketRecord 10 rtt_ms u32")).is_err()
    );
    assert!(
        extend(&whole.replace("SocketRecord 10 rtt_us u32", "SocketRecord 999 rtt_us u32"))
            .is_err()
    );
    assert!(
        extend(&whole.replace("SocketRecord 10 rtt_us u32", "SocketRecord 10 rtt_us u64")).is_err()
    );
    assert!(
        extend(&whole.replace("SocketState 6 time_wait word", "SocketState 6 waiting word"))
            .is_err()
    );
    assert!(extend(&format!("{whole}SocketRecord 10 other u32\n")).is_err());
    let retired = format!("{whole}SocketRecord 999 gone u32\n");
    assert_eq!(extend(&retired).as_ref(), Ok(&retired));
}
