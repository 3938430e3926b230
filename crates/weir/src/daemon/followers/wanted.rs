//! What a follower asks for.

use admin::service::pairs;
use config::Source;
use sockets::filter::{Filter, Needs};
use std::time::Duration;
use text::units::{parse_count_in, parse_duration};

/// A parsed query.
#[derive(Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) sources: Vec<Source>,
    pub(super) filter: Option<Filter>,
    /// Most records.
    pub(super) limit: Option<u64>,
    /// How long to follow.
    pub(super) time: Option<Duration>,
}

impl Wanted {
    /// Reads a query, of a daemon that has these sources.
    pub(super) fn read(query: &str, has: &[Source]) -> Result<Wanted, String> {
        let mut wanted = Wanted { sources: has.to_vec(), filter: None, limit: None, time: None };
        let mut is_following = false;
        for (name, value) in pairs(query)? {
            match name.as_str() {
                "follow" if matches!(value.as_str(), "" | "1" | "true") => is_following = true,
                "follow" => return Err("follow: it takes no value".to_owned()),
                "from" => wanted.sources = sources(&value, has)?,
                "filter" => wanted.filter = filter(&value)?,
                "limit" => wanted.limit = Some(limit(&value)?),
                "for" => wanted.time = Some(time(&value)?),
                other => {
                    return Err(format!(
                        "\"{}\" is not a parameter; they are follow, from, filter, limit and for",
                        other.escape_debug()
                    ));
                }
            }
        }

        if !is_following {
            return Err("records are only sent as they are made. Fix: /records?follow; for those of the past ask /query, or \
                        `weir query`"
                .to_owned());
        }
        if wanted.sources.is_empty() {
            return Err(
                "this daemon makes no records: the configuration has neither [sockets] nor [flows]"
                    .to_owned(),
            );
        }
        if wanted.filter.is_some() && !wanted.sources.contains(&Source::Sockets) {
            return Err("filter: it is for sockets, and from names none".to_owned());
        }
        Ok(wanted)
    }
}

fn sources(text: &str, has: &[Source]) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for word in text.split(',').map(str::trim) {
        let named = [Source::Sockets, Source::Flows, Source::Events];
        let Some(source) = named.into_iter().find(|source| source.to_string() == word) else {
            return Err(format!(
                "from: \"{}\" cannot be followed; sockets, flows and events can. The datagrams of a listener go to a [[sink]]",
                word.escape_debug()
            ));
        };
        if !has.contains(&source) {
            let section = match source {
                Source::Events => "[[threshold]]".to_owned(),
                _ => format!("[{source}]"),
            };
            return Err(format!("from: no {source} here: the configuration has no {section}"));
        }
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    Ok(sources)
}

fn filter(text: &str) -> Result<Option<Filter>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let filter = Filter::parse(text).and_then(|filter| {
        // A record has the index of an interface.
        filter.check_known(Needs::ALL.without(Needs::INTERFACE)).map(|()| filter)
    });
    filter.map(Some).map_err(|error| format!("filter: {error}"))
}

fn limit(text: &str) -> Result<u64, String> {
    parse_count_in(text, 1..=u64::MAX - 1)
        .map_err(|error| format!("limit: \"{}\": {error}", text.escape_debug()))
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| format!("for: {error}"))?;
    if time.is_zero() { Err("for: it is longer than 0".to_owned()) } else { Ok(time) }
}

/// Whether a query asks for individual sockets. Whatever cannot be read does.
pub(super) fn shows_sockets(query: &str) -> bool {
    let Ok(pairs) = pairs(query) else { return true };
    match pairs.iter().rfind(|(name, _)| name == "from") {
        Some((_, from)) => from.split(',').any(|word| word.trim() == Source::Sockets.to_string()),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Source; 3] = [Source::Sockets, Source::Flows, Source::Events];

    #[test]
    fn questions() {
        let read = |query| Wanted::read(query, &ALL).unwrap();
        assert_eq!(read("follow").sources, ALL);
        assert_eq!(
            read("from=events,%20sockets,events&follow=").sources,
            [Source::Events, Source::Sockets]
        );
        let wanted = read("follow&limit=5&for=10s&filter=dport+=+:443");
        assert_eq!((wanted.limit, wanted.time), (Some(5), Some(Duration::from_secs(10))));
        assert_eq!(wanted.filter, Filter::parse("dport = :443").ok());
        assert_eq!(read("follow&filter=").filter, None);
    }

    #[test]
    fn wrong_questions() {
        let wrong = |query: &str, has: &[Source], message: &str| {
            let said = Wanted::read(query, has).unwrap_err();
            assert!(said.starts_with(message), "{query}: {said}");
        };
        wrong("", &ALL, "records are only sent as they are made");
        wrong("follow=no", &ALL, "follow: it takes no value");
        wrong("follow&from=syslog", &ALL, "from: \"syslog\" cannot be followed");
        wrong("follow&from=", &ALL, "from: \"\" cannot be followed");
        wrong(
            "follow&from=events",
            &ALL[..2],
            "from: no events here: the configuration has no [[threshold]]",
        );
        wrong("follow&from=flows&filter=sport+=+1", &ALL, "filter: it is for sockets");
        wrong("follow&filter=sprot", &ALL, "filter: `sprot` is not a word");
        wrong("follow&filter=dev+=+nosuch0", &ALL, "filter: ");
        wrong(
            "follow&limit=0",
            &ALL,
            "limit: \"0\": it is out of range. Fix: write a number from 1 to 18446744073709551614",
        );
        wrong("follow&for=0s", &ALL, "for: it is longer than 0");
        wrong("follow&for=x", &ALL, "for: ");
        wrong("follow&form=x", &ALL, "\"form\" is not a parameter");
        wrong("follow", &[], "this daemon makes no records");
    }

    #[test]
    fn no_spelling_of_a_query_hides_that_it_shows_sockets() {
        for query in [
            "follow",
            "follow&from=sockets",
            "from=flows,%73ockets",
            "from=flows&from=+sockets",
            "%",
        ] {
            assert!(shows_sockets(query), "{query}");
        }
        for query in ["follow&from=flows", "from=sockets&from=events"] {
            assert!(!shows_sockets(query), "{query}");
        }
    }
}
