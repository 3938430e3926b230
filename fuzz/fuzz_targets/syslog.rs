//! Reading any bytes as syslog must not panic. What is understood, in whatever form, says the same when it is written as
//! RFC 5424.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::syslog::{Arrival, Form, Format, Syslog, Zone, ZoneChange, parse};

fuzz_target!(|input: (u64, i32, [i32; 2], &[u8])| {
    let (unix_ns, offset_seconds, later, bytes) = input;
    let change =
        |(unix_seconds, offset_seconds): (i64, i32)| ZoneChange { unix_seconds, offset_seconds };
    let now = (unix_ns / 1_000_000_000) as i64;
    let changes = [(now - 1_000_000, later[0]), (now + 1_000, later[1])].map(change).to_vec();
    let zone = Zone::changing(offset_seconds, changes);
    let zone_words = [("Wien".to_owned(), Zone::fixed(3_600))];
    let arrival = Arrival { unix_ns, zone: &zone, zone_words: &zone_words };

    let said = parse(bytes, arrival);
    let texts = [said.hostname, said.app_name, said.proc_id, said.msg_id];
    let all = texts.iter().flatten().map(|text| text.as_bytes());
    for part in all.chain(said.structured_data).chain(said.message) {
        assert!(!part.is_empty() && bytes.as_ptr_range().contains(&part.as_ptr()));
    }

    if said.format == Format::Unparsed {
        assert_eq!(texts, [None; 4]);
        assert_eq!((said.structured_data, said.message, said.time_unix_ns), (None, None, None));
    } else if let (Some(facility), Some(severity)) = (said.facility, said.severity) {
        let again = write(&said, facility * 8 + severity);
        let (form, fault) = (Some(Form::Rfc5424), None);
        let wanted = Syslog { format: Format::Rfc5424, form, fault, time_unix_ns: None, ..said };
        // A lone hyphen is how RFC 5424 says that there is none.
        if texts.contains(&Some("-")) {
            return;
        }
        assert_eq!(parse(&again, arrival), wanted, "{}", again.escape_ascii());
    }
});

/// The message as RFC 5424, without its time.
fn write(said: &Syslog<'_>, priority: u8) -> Vec<u8> {
    let mut out = format!("<{priority}>1 -").into_bytes();
    for text in [said.hostname, said.app_name, said.proc_id, said.msg_id] {
        out.push(b' ');
        out.extend_from_slice(text.unwrap_or("-").as_bytes());
    }
    out.push(b' ');
    out.extend_from_slice(said.structured_data.unwrap_or(b"-"));

    // With the mark, so that a text that begins with one keeps it.
    out.extend_from_slice(" \u{feff}".as_bytes());
    out.extend_from_slice(said.message.unwrap_or_default());
    out
}
