//! Questions to a ClickHouse server, which can only read.

use super::ClickHouseOptions;
use super::answers::code_of_header;
use super::insert::request;
use crate::batch::Failure;
use crate::http::{Answer, BodyEnd, BodyLimits, Client, parse_url, tasks};
use crate::tasks::Tasks;
use ledger::Trouble;
use reqwest::Url;
use std::time::Duration;

/// Rows come as lines of JSON: names, types, then one array for each row.
const FORMAT: &str = "JSONCompactEachRowWithNamesAndTypes";

/// How long the server may take beyond the limit of a question, to say that it is reached.
const GRACE: Duration = Duration::from_secs(5);

/// Asks a server.
pub struct Asker {
    options: ClickHouseOptions,
    url: Url,
    client: Client,
    tasks: Tasks,
}

/// The limits of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskLimits {
    pub time: Duration,
    /// Most rows that the server sends, give or take one of its blocks.
    pub rows_max: usize,
    /// Most bytes of an answer. The rest of it is not read.
    pub bytes_max: usize,
}

/// The rows of an answer, one line of JSON each after one of names and one of types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    pub bytes: Vec<u8>,
    /// Whether the answer was longer than its limit, so that the last line may not be whole.
    pub is_cut: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{}. Fix: {}", trouble.what, trouble.fix)]
pub struct AskError {
    pub kind: AskErrorKind,
    pub trouble: Trouble,
}

/// What kept the server from answering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskErrorKind {
    /// There is no server, or it did not answer.
    Unreachable,
    /// The user may not ask this.
    Denied,
    /// It took longer than its limit.
    Late,
    /// The statement is wrong.
    Statement,
}

impl Asker {
    /// An asker of questions that take at most `time_max`. Connects to nothing yet.
    ///
    /// # Errors
    /// The address is not one, or a certificate or key cannot be read.
    pub fn new(options: ClickHouseOptions, time_max: Duration) -> Result<Asker, Trouble> {
        let url = parse_url(&options.url)?;
        let client = Client::new(&url, &options.tls, time_max + GRACE)?;
        Ok(Asker { options, url, client, tasks: tasks()? })
    }

    /// Asks one question. The server runs it with `readonly = 1`, so it can change nothing, no setting either.
    ///
    /// # Errors
    /// There is no answer; the error says what fixes it.
    pub fn ask(&self, statement: &str, limits: AskLimits) -> Result<Lines, AskError> {
        let asked = self.tasks.block_on(limits.time + GRACE, self.send(statement, limits));
        let late = || self.late(limits);
        let answer = asked.ok_or_else(late)?.map_err(unreachable)?;
        if let Some(code) = code_of_header(&answer) {
            return Err(self.refused(code, &answer, limits));
        }
        if !answer.status.is_success() {
            let what = format!("{} does not answer: {}", self.client.address(), answer.words());
            let fix = "see that the port is that of ClickHouse's HTTP interface (8123)".to_owned();
            let trouble = Trouble { what, fix };
            return Err(AskError { kind: AskErrorKind::Unreachable, trouble });
        }
        // Rows are missing without the rest of them, and nothing else would show it.
        let answer = answer.whole().map_err(unreachable)?;
        let is_cut = matches!(answer.end, BodyEnd::TooLong);
        Ok(Lines { bytes: answer.body, is_cut })
    }

    async fn send(&self, statement: &str, limits: AskLimits) -> Result<Answer, Failure> {
        let time_s = limits.time.as_secs_f64().to_string();
        // One more than wanted shows that there are more.
        let rows_max = limits.rows_max.saturating_add(1).to_string();
        let settings = [
            ("default_format", FORMAT),
            // An error during the answer then has a status of its own, instead of ending the rows.
            ("wait_end_of_query", "1"),
            ("max_execution_time", &time_s),
            ("max_result_rows", &rows_max),
            ("result_overflow_mode", "break"),
            // As in SQLite, and in the standard.
            ("join_use_nulls", "1"),
            ("output_format_json_quote_64bit_integers", "0"),
            ("output_format_json_quote_denormals", "1"),
            ("readonly", "1"),
        ];
        let ClickHouseOptions { login, database, .. } = &self.options;
        let request = request(&self.client, &self.url, login, (database, &settings))?;
        let body = BodyLimits { bytes: limits.bytes_max, time: limits.time + GRACE };
        self.client.send_within(request.body(statement.to_owned()), body).await
    }

    fn late(&self, limits: AskLimits) -> AskError {
        let what = format!(
            "{} has not answered within {} s, the limit",
            self.client.address(),
            limits.time.as_secs_f64()
        );
        let fix = "ask for less, or raise --timeout".to_owned();
        AskError { kind: AskErrorKind::Late, trouble: Trouble { what, fix } }
    }

    /// Codes and names are those of `src/Common/ErrorCodes.cpp`.
    fn refused(&self, code: u32, answer: &Answer, limits: AskLimits) -> AskError {
        let ClickHouseOptions { database, .. } = &self.options;
        let (kind, fix) = match code {
            // TIMEOUT_EXCEEDED
            159 => return self.late(limits),
            // UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, AUTHENTICATION_FAILED
            192..=194 | 516 => (
                AskErrorKind::Denied,
                "add ?user=NAME&password_file=PATH, as the sink has them".to_owned(),
            ),
            // READONLY
            164 => (
                AskErrorKind::Denied,
                "ask with SELECT and without SETTINGS, as a user whose profile has readonly = 0 or 2".to_owned(),
            ),
            // ACCESS_DENIED
            497 => (AskErrorKind::Denied, format!("GRANT SELECT ON {database}.* TO this user")),
            // UNKNOWN_TABLE, UNKNOWN_DATABASE
            60 | 81 => (
                AskErrorKind::Statement,
                "name the database and the table_prefix of the sink, and see that it has delivered: weir sink check NAME".to_owned(),
            ),
            // MEMORY_LIMIT_EXCEEDED
            241 => (AskErrorKind::Late, "ask for a shorter range, or for one --host".to_owned()),
            _ => (
                AskErrorKind::Statement,
                "write it in ClickHouse's dialect; weir query --schema lists the columns".to_owned(),
            ),
        };
        let what = format!("{} refused it: {}", self.client.address(), answer.words());
        AskError { kind, trouble: Trouble { what, fix } }
    }
}

fn unreachable(failure: Failure) -> AskError {
    AskError { kind: AskErrorKind::Unreachable, trouble: failure.trouble }
}
