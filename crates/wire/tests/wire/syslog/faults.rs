//! RFC 5424 with a part that is not as it says: what stands before it is kept.

use super::{Said, at, check};
use wire::syslog::{Fault, Format};

#[test]
fn what_stands_before_a_fault_of_rfc5424_is_kept() {
    let header = Said {
        priority: Some(34),
        time: at(1_065_910_455, 3_000_000),
        hostname: Some("host"),
        app_name: Some("app"),
        ..Said::default()
    };
    let data = |message| Said { fault: Some(Fault::StructuredData), message, ..header };
    let check = |line: &str, said| check(Format::Rfc5424, line, said);
    check("<34>1 2003-10-11T22:14:15.003Z host app - -", data(None));
    check("<34>1 2003-10-11T22:14:15.003Z host app - - text", data(Some("text")));
    for rest in ["[a b=\"c] text", "[a b=\"c\"text", "[a b=c] text", "[] text", "-text"] {
        let line = format!("<34>1 2003-10-11T22:14:15.003Z host app - - {rest}");
        check(&line, Said { message: Some(rest.to_owned().leak()), ..data(None) });
    }
    let element = Said { data: Some("[a b=\"c\"]"), message: Some("text"), ..data(None) };
    let element = Said { fault: Some(Fault::Message), ..element };
    check("<34>1 2003-10-11T22:14:15.003Z host app - - [a b=\"c\"]text", element);

    // An empty part, one that is not ASCII, and a line that ends early.
    let faulty = |fault, message| Said { fault: Some(fault), message, ..header };
    let no_host =
        |message| Said { hostname: None, app_name: None, ..faulty(Fault::Hostname, message) };
    check("<34>1 2003-10-11T22:14:15.003Z  app - - - text", no_host(Some("app - - - text")));
    check(
        "<34>1 2003-10-11T22:14:15.003Z h\u{f6}st a - - - t",
        no_host(Some("h\u{f6}st a - - - t")),
    );
    check("<34>1 2003-10-11T22:14:15.003Z host app", faulty(Fault::ProcId, None));
    check("<34>1 2003-10-11T22:14:15.003Z host app -", faulty(Fault::MsgId, None));
    // Two blanks, where the message is clean without one of them.
    let clean = Said { message: Some("text"), ..header };
    check("<34>1 2003-10-11T22:14:15.003Z  host  app - - - text", clean);

    // A time without a zone is the only doubt; one that is not a time ends it.
    let zoneless = Said { message: Some("text"), ..faulty(Fault::TimeZone, None) };
    check("<34>1 2003-10-11T22:14:15.003 host app - - - text", zoneless);
    for time in [
        "2003-13-11T22:14:15.003Z", // month 13
        "2003-02-29T22:14:15.003Z", // a day that the year does not have
        "2003-10-11T24:14:15.003Z", // hour 24
        "2003-10-11T22:14:15.Z",    // a dot without digits
        "2003-10-11T22:14:15+2:00", // a digit of the zone missing
        "2003-10-11 22:14:15.003Z", // a blank in place of the T
    ] {
        let message = format!("{time} host app - - - text");
        let said = Said { fault: Some(Fault::Time), priority: Some(34), ..Said::default() };
        check(&format!("<34>1 {message}"), Said { message: Some(message.leak()), ..said });
    }
}

#[test]
fn what_only_begins_like_rfc5424_is_text() {
    for text in [
        "2 2003-10-11T22:14:15.003Z host app - - - text", // version 2
        "1 - of many things that are listed",
        "1 of 3 disks failed",
        "1 2003-10-11 backup done",
    ] {
        let said = Said { priority: Some(34), message: Some(text), ..Said::default() };
        check(Format::Rfc3164, &format!("<34>{text}"), said);
    }
    let missing =
        Said { priority: Some(34), fault: Some(Fault::StructuredData), ..Said::default() };
    check(Format::Rfc5424, "<34>1 - - - - -", missing);
}
