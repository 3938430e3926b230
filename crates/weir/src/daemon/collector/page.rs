//! `GET /sockets?filter=…&limit=…`: the question as it comes over HTTP, and the collector's answer.

use admin::service::pairs;
use admin::{Page, PageError, Pieces};
use sockets::filter::{Filter, FilterError, Needs};
use sockets::{QueryError, Questions};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Sockets in an answer unless the question says otherwise.
const LIMIT_DEFAULT: usize = 1_000;
/// Most sockets in an answer: 100,000 of them are some 150 MB of JSON, which is made as it is taken.
const LIMIT_MAX: usize = 100_000;
/// Longest wait for the question's turn: others may be before it, or a poll be under way. With the time that an answer may take
/// it stays below the life of a connection ([`admin::CONNECTION_LIFETIME_MAX`]).
const TURN_WAIT: Duration = Duration::from_secs(5);

/// Whom to ask, which changes with a reload; `None` while there is no collector.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Option<Questions>>>);

impl Asked {
    pub(crate) fn set(&self, questions: Option<Questions>) {
        // Nothing panics while it holds the lock.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = questions;
    }

    fn questions(&self) -> Option<Questions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The page for the admin server.
pub(crate) fn page(asked: &Asked) -> Page {
    let asked = asked.clone();
    Arc::new(move |query| answer(&asked, query))
}

fn answer(asked: &Asked, query: &str) -> Result<Pieces, PageError> {
    let Question { filter, limit } = Question::parse(query).map_err(PageError::BadQuery)?;
    let filter = match filter.trim() {
        "" => None,
        text => Some(read(text).map_err(|error| PageError::BadQuery(format!("filter: {error}")))?),
    };

    let Some(questions) = asked.questions() else {
        return Err(PageError::Unavailable("the collector is being started anew".to_owned()));
    };

    match questions.ask(filter, limit, TURN_WAIT) {
        Ok(answer) => Ok(Box::new(answer.map(|piece| piece.map_err(io::Error::other)))),
        Err(error @ QueryError::Busy) => Err(PageError::Busy(error.to_string())),
        Err(error) => Err(PageError::Unavailable(error.to_string())),
    }
}

fn read(text: &str) -> Result<Filter, FilterError> {
    let filter = Filter::parse(text)?;
    filter.check_known(Needs::ALL.without(Needs::PROCESSES)).map(|()| filter)
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    filter: String,
    limit: usize,
}

impl Question {
    /// Reads what follows the question mark.
    fn parse(query: &str) -> Result<Question, String> {
        let mut question = Question { filter: String::new(), limit: LIMIT_DEFAULT };

        for (name, value) in pairs(query)? {
            match name.as_str() {
                "filter" => question.filter = value,
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    question.limit = limit.ok_or_else(|| {
                        format!(
                            "limit: \"{}\" is not a number from 1 to {LIMIT_MAX}",
                            value.escape_debug()
                        )
                    })?;
                }
                other => {
                    return Err(format!(
                        "\"{}\" is not a parameter; they are filter and limit",
                        other.escape_debug()
                    ));
                }
            }
        }

        Ok(question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, filter: &str, limit: usize) {
        let question = Question { filter: filter.to_owned(), limit };
        assert_eq!(Question::parse(query), Ok(question), "{query}");
    }

    #[test]
    fn questions() {
        check("", "", 1_000);
        check("filter=", "", 1_000);
        check("limit=5&filter=dport%20%3D%20%3a443", "dport = :443", 5);
        check(
            "filter=state+established+and+not+src+10.0.0.0/8",
            "state established and not src 10.0.0.0/8",
            1_000,
        );
        check("filter=a=b", "a=b", 1_000);
        check("f%69lter=%25&limit=100000", "%", 100_000);
        check("filter=%C3%A9&&", "é", 1_000);
    }

    fn wrong(query: &str, message: &str) {
        assert_eq!(Question::parse(query), Err(message.to_owned()), "{query}");
    }

    #[test]
    fn wrong_questions() {
        wrong("limit=0", "limit: \"0\" is not a number from 1 to 100000");
        wrong("limit=", "limit: \"\" is not a number from 1 to 100000");
        wrong("limit=100001", "limit: \"100001\" is not a number from 1 to 100000");
        wrong("filtre=x", "\"filtre\" is not a parameter; they are filter and limit");
        let percent = "a % is followed by two hexadecimal digits; % itself is %25";
        wrong("filter=%", percent);
        wrong("filter=%4", percent);
        wrong("filter=%zz", percent);
        wrong("filter=%+1", percent);
        wrong("filter=%ff", "it is no text in UTF-8");
    }

    #[test]
    fn filters_that_cannot_be_answered() {
        let said = |filter| match answer(&Asked::default(), filter) {
            Err(PageError::BadQuery(text)) => text,
            _ => panic!("{filter} was taken"),
        };
        assert!(said("filter=sprot").starts_with("filter: `sprot` is not a word"));
        assert!(said("filter=rtt>1ms+and+process=nginx").contains("\n              ^^^^^^^\n"));
    }
}
