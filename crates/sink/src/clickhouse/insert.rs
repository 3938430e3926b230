//! The destination that inserts into ClickHouse.

use super::answers::{Place, UNKNOWN_DATABASE, UNKNOWN_TABLE, code_of, fate};
use super::{ClickHouseOptions, Duplicates, Insertion, MissingTables, columns, tables};
use crate::batch::{Attempt, Batch, Encoded, Failure, Fate, Outcome, Part, PartKey, Sent};
use crate::destination::{
    BatchEncoder, Connector, Destination, Form, OwnFigures, Pushed, ReadBack,
};
use crate::http::{
    Answer, BodyEncoder, Client, IN_FLIGHT_MAX, body_of, failure, no_secret, parse_url,
    secret_value, tasks,
};
use crate::secret::Login;
use crate::tasks::Tasks;
use ledger::{Reason, Trouble};
use record::{Native, Row, RowKind};
use reqwest::header::CONTENT_ENCODING;
use reqwest::{Method, RequestBuilder, Url};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Tables of a ClickHouse server.
pub fn clickhouse(options: ClickHouseOptions) -> Connector {
    let ClickHouseOptions { fields, compression, .. } = options;
    let form = move || {
        let encoder = |kind| {
            let rows = Box::new(TableRows { block: Native::new(kind, &fields), part: None });
            let header = Vec::new();
            (kind, Box::new(BodyEncoder { rows, header, compression }) as Box<dyn BatchEncoder>)
        };
        Form::ByKind(RowKind::ALL.map(encoder).into())
    };
    let destination =
        move || Ok(Box::new(ClickHouse::new(options.clone())?) as Box<dyn Destination>);
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

/// Encodes rows of one table.
struct TableRows {
    block: Native,
    part: Option<Part>,
}

impl BatchEncoder for TableRows {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        if self.block.push(row.bytes).is_err() {
            return Pushed::Skipped(Reason::EncodeError);
        }

        let part = self.part.get_or_insert(Part { end: 0, rows: 0, row_bytes: 0, key });
        part.rows += 1;
        part.row_bytes += row.bytes.len() as u64;
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.block.bytes()
    }

    fn finish(&mut self) -> Encoded {
        let bytes = self.block.finish();
        let part = self.part.take().map(|part| Part { end: bytes.len(), ..part });
        Encoded { bytes, parts: part.into_iter().collect() }
    }
}

struct ClickHouse {
    server: Arc<Server>,
    tasks: Tasks,
}

/// What every request needs.
struct Server {
    options: ClickHouseOptions,
    url: Url,
    client: Client,
    columns: Mutex<Columns>,
}

/// What is known about the columns of the tables.
#[derive(Default)]
struct Columns {
    /// The kinds of rows whose table holds every value. Checked again after the table refuses an insert.
    fit: HashSet<RowKind>,
    /// Why the columns cannot be checked.
    unseen: Option<Trouble>,
}

/// The result of checking a table's columns.
enum Look {
    Fit,
    /// They are not visible, or the table does not exist; the text says why.
    Unseen(String),
}

impl ClickHouse {
    fn new(options: ClickHouseOptions) -> Result<ClickHouse, Trouble> {
        let url = parse_url(&options.url)?;
        let client = Client::new(&url, &options.tls, options.request_timeout)?;
        let server = Arc::new(Server { options, url, client, columns: Mutex::default() });
        Ok(ClickHouse { server, tasks: tasks()? })
    }
}

impl Destination for ClickHouse {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.tasks.len() >= IN_FLIGHT_MAX {
            return Err(attempt);
        }
        let server = Arc::clone(&self.server);
        self.tasks.spawn(async move {
            let batch = attempt.batch;
            let fate = server.deliver(&batch).await.unwrap_or_else(Fate::Failed);
            vec![Outcome::all(batch.id, fate)]
        });
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        self.tasks.poll(wait, done);
    }

    fn read_back(&mut self, batch: &Batch, wait: Duration) -> ReadBack {
        if batch.oldest_unix_ns == 0 {
            return ReadBack::Cannot("its rows have no time to look for");
        }
        let look = self.server.count_at(batch);
        match self.tasks.block_on(wait, look) {
            Some(Ok(0)) => {
                ReadBack::Missing(format!("no row of the time {}", batch.oldest_unix_ns))
            }
            Some(Ok(_)) => ReadBack::Found,
            Some(Err(failure)) => ReadBack::Missing(failure.trouble.what),
            None => ReadBack::Missing("no answer in time".to_owned()),
        }
    }

    fn figures(&self) -> OwnFigures {
        let trouble = self.server.columns().unseen.clone();
        OwnFigures { trouble, ..OwnFigures::default() }
    }

    fn is_idempotent(&self) -> bool {
        self.server.options.duplicates == Duplicates::Removed
    }
}

impl Server {
    /// Inserts a batch. Creates its table first if it is missing and may be created.
    async fn deliver(&self, batch: &Arc<Batch>) -> Result<Fate, Failure> {
        let kind = batch.kind.unwrap_or(RowKind::Record);
        let table = self.table(kind);
        let (address, database) = (self.client.address(), self.options.database.as_str());
        let place = Place { address, database, table: &table, kind };

        let insertion = self.options.insertion;
        let mut look = self.look(&place).await?;
        let mut answer = self.insert(batch, kind, insertion).await?;
        let is_missing = matches!(code_of(&answer), Some(UNKNOWN_TABLE | UNKNOWN_DATABASE));
        if is_missing && self.options.missing_tables == MissingTables::Created {
            self.create(kind).await?;
            // Another client may have created it in the meantime.
            look = self.look(&place).await?;
            answer = self.insert(batch, kind, insertion).await?;
        }

        let mut result = fate(&answer, &place);
        if insertion == Insertion::Gathered && matches!(result, Fate::Rejected { .. }) {
            // The server refuses all inserts that it gathered for the bad rows of one, and writes none of them. Inserted alone, the
            // batch is refused for its own rows only.
            answer = self.insert(batch, kind, Insertion::AtOnce).await?;
            result = fate(&answer, &place);
        }
        self.note(&place, look, &result);
        Ok(result)
    }

    /// Checks the columns of a table, unless that is already done. Not every user may see them; if this one cannot, rows are
    /// inserted anyway.
    async fn look(&self, place: &Place<'_>) -> Result<Look, Failure> {
        let (kind, fields) = (place.kind, &self.options.fields);
        if self.columns().fit.contains(&kind) {
            return Ok(Look::Fit);
        }

        let question = columns::question(kind, fields, place.database, place.table);
        let request = self.request(place.database, &[])?.body(question);
        // Nothing of the batch has been sent.
        let answer = self
            .client
            .send(request)
            .await
            .map_err(|failure| Failure { sent: Sent::No, ..failure })?;
        if !answer.status.is_success() || code_of(&answer).is_some() {
            return Ok(Look::Unseen(answer.words()));
        }
        let answer = match answer.whole() {
            Ok(answer) => answer,
            Err(failure) => return Ok(Look::Unseen(failure.trouble.what)),
        };
        match columns::misfits(kind, fields, &String::from_utf8_lossy(&answer.body)) {
            Some(misfits) if misfits.is_empty() => Ok(Look::Fit),
            Some(misfits) => Err(columns::unfit(&misfits, place)),
            None => Ok(Look::Unseen("it shows no column of it".to_owned())),
        }
    }

    /// Remembers the result of a check for the next inserts, if this insert was accepted.
    fn note(&self, place: &Place<'_>, look: Look, fate: &Fate) {
        let Place { address, database, table, kind } = place;
        let mut known = self.columns();
        match (fate, look) {
            (Fate::Acknowledged, Look::Fit) => {
                if known.fit.insert(*kind) {
                    known.unseen = None;
                }
            }
            (Fate::Acknowledged, Look::Unseen(says)) => {
                let what = format!(
                    "{address} takes rows into {database}.{table}, and does not say whether its columns keep every value: {says}"
                );
                let fix = format!(
                    "GRANT SHOW COLUMNS ON {database}.{table} TO the user of this sink: a narrower number would be cut unseen"
                );
                known.unseen = Some(Trouble { what, fix });
            }
            _ => {
                known.fit.remove(kind);
            }
        }
    }

    fn columns(&self) -> MutexGuard<'_, Columns> {
        // Nothing panics between two related changes, so a poisoned lock is still consistent.
        self.columns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn insert(
        &self,
        batch: &Arc<Batch>,
        kind: RowKind,
        insertion: Insertion,
    ) -> Result<Answer, Failure> {
        let into = self.quoted_table(kind);
        // A block has the columns of its values. All are named here, so that a table without one of them is refused at once.
        let columns = Native::columns(kind);
        let query = format!("INSERT INTO {into} ({columns}) FORMAT Native");
        let token = format!("{:032x}", batch.token);
        let mut settings = vec![("query", query.as_str()), ("insert_deduplication_token", &token)];
        // Answer once everything is written, with the status of the insert: with progress in headers, a status of success would
        // come before the insert has one.
        settings.extend([("wait_end_of_query", "1"), ("send_progress_in_http_headers", "0")]);
        if insertion == Insertion::AtOnce {
            // The user's profile may gather inserts.
            settings.push(("async_insert", "0"));
        } else {
            settings.extend([("async_insert", "1"), ("wait_for_async_insert", "1")]);
            if self.options.duplicates == Duplicates::Removed {
                settings.push(("async_insert_deduplicate", "1"));
            }
        }

        let mut request = self.request(&self.options.database, &settings)?;
        if let Some(coding) = self.options.compression.coding() {
            request = request.header(CONTENT_ENCODING, coding);
        }
        self.client.send(request.body(body_of(Arc::clone(batch)))).await
    }

    /// Creates the database and the table for rows of this kind.
    async fn create(&self, kind: RowKind) -> Result<(), Failure> {
        let database = format!("CREATE DATABASE IF NOT EXISTS {}", quoted(&self.options.database));
        let table = tables::creation(kind, &self.quoted_table(kind));
        for statement in [database, table] {
            // The database named in a request must exist.
            let request = self.request("default", &[])?.body(statement);
            self.asked(request, "to make its tables").await?;
        }
        Ok(())
    }

    /// How many rows of the table have the time of this batch's oldest row.
    async fn count_at(&self, batch: &Batch) -> Result<u64, Failure> {
        let table = self.quoted_table(batch.kind.unwrap_or(RowKind::Record));
        let time = batch.oldest_unix_ns;
        let query = format!("SELECT count() FROM {table} WHERE time_unix_ns = {time}");
        let request = self.request(&self.options.database, &[])?.body(query);
        let answer = self.asked(request, "to be read").await?.whole()?;
        Ok(String::from_utf8_lossy(&answer.body).trim().parse().unwrap_or(0))
    }

    /// The answer to a request that is not an insert.
    async fn asked(&self, request: RequestBuilder, what_for: &str) -> Result<Answer, Failure> {
        let answer = self.client.send(request).await?;
        if answer.status.is_success() && code_of(&answer).is_none() {
            return Ok(answer);
        }
        let address = self.client.address();
        let what = format!("{address} refused {what_for}: {}", answer.words());
        let fix =
            format!("give the user of this sink the right: GRANT … ON {}.*", self.options.database);
        Err(failure(Sent::No, what, fix))
    }

    fn request(
        &self,
        database: &str,
        settings: &[(&str, &str)],
    ) -> Result<RequestBuilder, Failure> {
        request(&self.client, &self.url, &self.options.login, (database, settings))
    }

    fn table(&self, kind: RowKind) -> String {
        format!("{}{}", self.options.table_prefix, Native::table(kind))
    }

    fn quoted_table(&self, kind: RowKind) -> String {
        format!("{}.{}", quoted(&self.options.database), quoted(&self.table(kind)))
    }
}

/// A request to a database, with these settings and the login.
pub(super) fn request(
    client: &Client,
    url: &Url,
    login: &Login,
    (database, settings): (&str, &[(&str, &str)]),
) -> Result<RequestBuilder, Failure> {
    let mut url = url.clone();
    url.query_pairs_mut().append_pair("database", database).extend_pairs(settings);
    let mut request = client.request(Method::POST, url);

    if let Some(user) = &login.user {
        request = request.header("X-ClickHouse-User", user);
    }
    if let Some(password) = login.password().map_err(no_secret)? {
        request = request.header("X-ClickHouse-Key", secret_value(password.reveal())?);
    }
    Ok(request)
}

/// An identifier, quoted for SQL.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}
