//! `GET /sockets?filter=…&limit=…`: parses the HTTP query and renders the collector's answer. With `sort` or `group` the answer
//! is a ranking: at most 200 sockets, from a walk shared by all who ask within the same second.

use admin::service::pairs;
use admin::{Page, PageError, Pieces};
use record::FieldSet;
use sockets::filter::{Filter, FilterError, Needs};
use sockets::{Figure, Group, Order, QueryError, Questions, RANKED_MAX, Ranked, Reach};
use std::fmt::Display;
use std::io;
use std::iter;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use text::units::parse_count_in;

/// Sockets in an answer without `limit`.
const LIMIT_DEFAULT: usize = 1_000;
/// Most sockets in an answer: 100,000 of them are some 150 MB of JSON, produced as the client reads it.
const LIMIT_MAX: usize = 100_000;
/// Longest wait for the query's turn: others may be first, or a poll may be under way. Together with the time an answer may
/// take, it stays below the lifetime of a connection ([`admin::CONNECTION_LIFETIME_MAX`]).
const TURN_WAIT: Duration = Duration::from_secs(5);

/// The collector to ask, which changes with a reload; `None` while there is none.
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
    Arc::new(move |query| answer(&asked, query, Reach::All))
}

/// The same of the daemon's own network namespace, for those who may not see more.
pub(crate) fn own_page(asked: &Asked) -> Page {
    let asked = asked.clone();
    Arc::new(move |query| answer(&asked, query, Reach::Own))
}

fn answer(asked: &Asked, query: &str, reach: Reach) -> Result<Pieces, PageError> {
    let Question { filter, limit, ranking } =
        Question::parse(query).map_err(PageError::BadQuery)?;
    let filter = match filter.trim() {
        "" => None,
        text => Some(read(text).map_err(|error| PageError::BadQuery(format!("filter: {error}")))?),
    };

    let Some(questions) = asked.questions() else {
        return Err(PageError::Unavailable("the collector is being started anew".to_owned()));
    };
    let questions = questions.within(reach);

    let answer = match ranking {
        None => questions
            .ask(filter, limit, TURN_WAIT)
            .map(|answer| Box::new(answer.map(|piece| piece.map_err(io::Error::other))) as Pieces),
        Some(Ranking { sort, order, group, fields }) => {
            let wanted = Ranked { filter, sort, order, limit, group, fields };
            let answer = questions.rank(wanted, TURN_WAIT);
            answer.map(|json| Box::new(iter::once(Ok(json))) as Pieces)
        }
    };
    answer.map_err(|error| match error {
        QueryError::Busy => PageError::Busy(error.to_string()),
        _ => PageError::Unavailable(error.to_string()),
    })
}

fn read(text: &str) -> Result<Filter, FilterError> {
    let filter = Filter::parse(text)?;
    filter.check_known(Needs::ALL.without(Needs::PROCESSES)).map(|()| filter)
}

/// A parsed query.
#[derive(Debug, PartialEq)]
struct Question {
    filter: String,
    limit: usize,
    /// `None` for a list in the kernel's order.
    ranking: Option<Ranking>,
}

#[derive(Debug, PartialEq)]
struct Ranking {
    sort: Figure,
    order: Order,
    group: Option<Group>,
    fields: FieldSet,
}

impl Question {
    /// Parses the query string.
    fn parse(query: &str) -> Result<Question, String> {
        let (mut filter, mut limit) = (String::new(), None);
        let (mut sort, mut group, mut fields) = (None, None, None);
        for (name, value) in pairs(query)? {
            match name.as_str() {
                "filter" => filter = value,
                "limit" => limit = Some(value),
                "sort" => sort = Some(sorting(&value)?),
                "group" => group = Some(named(&name, &value)?),
                "fields" => fields = Some(named(&name, &value)?),
                other => {
                    return Err(format!(
                        "\"{}\" is not a parameter; they are filter, limit, sort, group and fields",
                        other.escape_debug()
                    ));
                }
            }
        }

        if sort.is_none() && group.is_none() {
            if fields.is_some() {
                return Err("fields: only with sort or group".to_owned());
            }
            let limit = limited(limit, LIMIT_DEFAULT, LIMIT_MAX)?;
            return Ok(Question { filter, limit, ranking: None });
        }

        let (sort, order) = sort.unwrap_or((Figure::Rtt, Order::LargestFirst));
        let fields = fields.unwrap_or(FieldSet::ALL);
        let ranking = Some(Ranking { sort, order, group, fields });
        Ok(Question { filter, limit: limited(limit, RANKED_MAX, RANKED_MAX)?, ranking })
    }
}

fn limited(text: Option<String>, default: usize, max: usize) -> Result<usize, String> {
    let Some(text) = text else { return Ok(default) };
    parse_count_in(&text, 1..=max as u64)
        .map_err(|error| format!("limit: \"{}\": {error}", text.escape_debug()))
}

/// A figure to sort by, with a leading `-` for the largest first.
fn sorting(text: &str) -> Result<(Figure, Order), String> {
    let (figure, order) = match text.strip_prefix('-') {
        Some(figure) => (figure, Order::LargestFirst),
        None => (text, Order::SmallestFirst),
    };
    named("sort", figure).map(|figure| (figure, order))
}

fn named<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{name}: \"{}\": {error}", text.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, filter: &str, limit: usize) {
        let question = Question { filter: filter.to_owned(), limit, ranking: None };
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

    #[test]
    fn rankings() {
        let question = Question::parse("sort=-rtt_us&group=dst_port&fields=cookie,rtt_us").unwrap();
        assert_eq!(question.limit, 200);
        let ranking = question.ranking.unwrap();
        assert_eq!((ranking.sort, ranking.order), (Figure::Rtt, Order::LargestFirst));
        assert_eq!(ranking.group, Some(Group::PeerPort));
        assert!(ranking.fields.has("cookie") && !ranking.fields.has("state"));
        let question = Question::parse("sort=dst_port&limit=3").unwrap();
        assert_eq!(question.limit, 3);
        assert_eq!(question.ranking.unwrap().order, Order::SmallestFirst);
    }

    fn wrong(query: &str, message: &str) {
        assert_eq!(Question::parse(query), Err(message.to_owned()), "{query}");
    }

    #[test]
    fn wrong_questions() {
        wrong("limit=0", "limit: \"0\": it is out of range. Fix: write a number from 1 to 100000");
        wrong(
            "limit=",
            "limit: \"\": it does not start with a number. Fix: write for example 100k",
        );
        wrong(
            "limit=100001",
            "limit: \"100001\": it is out of range. Fix: write a number from 1 to 100000",
        );
        wrong(
            "filtre=x",
            "\"filtre\" is not a parameter; they are filter, limit, sort, group and fields",
        );
        wrong(
            "sort=-rtt_us&limit=201",
            "limit: \"201\": it is out of range. Fix: write a number from 1 to 200",
        );
        wrong("fields=cookie", "fields: only with sort or group");
        assert!(
            Question::parse("sort=rtt")
                .unwrap_err()
                .starts_with("sort: \"rtt\": expected one of rtt_us, ")
        );
        assert!(Question::parse("group=x").unwrap_err().contains("expected one of state, "));
        let percent = "a % is followed by two hexadecimal digits; % itself is %25";
        wrong("filter=%", percent);
        wrong("filter=%4", percent);
        wrong("filter=%zz", percent);
        wrong("filter=%+1", percent);
        wrong("filter=%ff", "it is no text in UTF-8");
    }

    #[test]
    fn filters_that_cannot_be_answered() {
        let said = |filter| match answer(&Asked::default(), filter, Reach::All) {
            Err(PageError::BadQuery(text)) => text,
            _ => panic!("{filter} was taken"),
        };
        assert!(said("filter=sprot").starts_with("filter: `sprot` is not a word"));
        assert!(said("filter=rtt>1ms+and+process=nginx").contains("\n              ^^^^^^^\n"));
    }
}
