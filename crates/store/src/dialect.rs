//! The macros of named queries whose text differs between engines.

use crate::sockets::socket_columns;
use crate::tables::close_columns;
use record::{Field, FlowRecord, Kind, PollTotals};

/// The engine that a statement is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dialect<'t> {
    /// This machine's store.
    Sqlite,
    ClickHouse(&'t ClickHouse),
}

/// The tables of a ClickHouse database, as Weir's sink fills them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickHouse {
    pub database: String,
    /// Prefix of all table names.
    pub table_prefix: String,
    /// Only rows of this host; `None` for all hosts.
    pub host: Option<String>,
}

/// The range of a statement, in nanoseconds since 1970.
pub(crate) struct Range {
    pub(crate) since_unix_ns: u64,
    pub(crate) until_unix_ns: u64,
    /// The width of a row of sums: a minute or an hour.
    pub(crate) rollup_ns: u64,
    pub(crate) rollup: &'static str,
}

impl Range {
    /// The start of the row of sums that was in progress at the start of the range.
    fn first_unix_ns(&self) -> u64 {
        self.since_unix_ns / self.rollup_ns * self.rollup_ns
    }

    /// The end of the last row of sums.
    fn end_unix_ns(&self) -> u64 {
        self.until_unix_ns.div_ceil(self.rollup_ns).saturating_mul(self.rollup_ns)
    }
}

impl Dialect<'_> {
    /// The text for a macro; `None` if there is no macro with this name and these arguments.
    pub(crate) fn text(self, words: &[&str], range: &Range) -> Option<String> {
        match self {
            Dialect::Sqlite => sqlite(words, range),
            Dialect::ClickHouse(tables) => tables.text(words, range),
        }
    }
}

fn sqlite(words: &[&str], range: &Range) -> Option<String> {
    Some(match *words {
        ["host"] => String::new(),
        [table @ ("sockets" | "closes" | "polls" | "flows")] => table.to_owned(),
        ["sums", dimension] => format!(
            "(SELECT * FROM {} WHERE dimension = '{dimension}' AND time_unix_ns >= {} AND time_unix_ns < {})",
            range.rollup,
            range.first_unix_ns(),
            range.until_unix_ns
        ),
        ["merged", sketch] => format!("sketch_merge({sketch})"),
        ["samples", sketch] => format!("sketch_count(sketch_merge({sketch}))"),
        ["between", merged, low, high] => format!("sketch_between({merged}, {low}, {high})"),
        [quantile, sketch] => {
            format!("sketch_quantile(sketch_merge({sketch}), {})", share_of(quantile)?)
        }
        _ => return None,
    })
}

/// The share of values below a quantile: 0.99 for `p99`.
fn share_of(quantile: &str) -> Option<&'static str> {
    match quantile {
        "p50" => Some("0.5"),
        "p90" => Some("0.9"),
        "p99" => Some("0.99"),
        _ => None,
    }
}

impl ClickHouse {
    fn text(&self, words: &[&str], range: &Range) -> Option<String> {
        Some(match *words {
            ["host"] => "host, ".to_owned(),
            ["sockets"] => self.rows("sockets", socket_columns(), "", range),
            ["closes"] => self.rows("sockets", &close_columns(), " AND record_kind = 2", range),
            ["polls"] => {
                self.rows("polls", &PollTotals::FIELDS.iter().collect::<Vec<_>>(), "", range)
            }
            ["flows"] => {
                self.rows("flows", &FlowRecord::FIELDS.iter().collect::<Vec<_>>(), "", range)
            }
            ["sums", dimension] => self.sums(dimension, range)?,
            // A sketch is a pair of arrays: the middles of its buckets, in ascending order, and their counts.
            ["merged", sketch] => format!("sumMap({sketch})"),
            ["samples", sketch] => format!("arraySum(sumMap({sketch}).2)"),
            ["between", merged, low, high] => format!(
                "arraySum((middle, number) -> if(middle >= {low} AND middle < {high}, number, 0), {merged}.1, {merged}.2)"
            ),
            [quantile, sketch] => quantile_of(sketch, share_of(quantile)?),
            _ => return None,
        })
    }

    /// The rows of a table with the columns that the store has: words instead of numbers, and addresses as text.
    fn rows(&self, table: &str, fields: &[&Field], only: &str, range: &Range) -> String {
        let columns: Vec<String> = fields.iter().map(|field| column(field)).collect();
        let columns = columns.join(", ");
        let (since, until) = (range.since_unix_ns, range.until_unix_ns);
        let from = self.from(table, (since, until));
        let host = if fields.iter().any(|field| field.name == "host") { "" } else { "host, " };
        format!("(SELECT {host}{columns} {from}{only})")
    }

    /// The rows that the store adds up by minute and hour, each on its own and with a sketch of one value.
    fn sums(&self, dimension: &str, range: &Range) -> Option<String> {
        let key = match dimension {
            "all" => "",
            "unit" => ", coalesce(systemd_unit, container_id, pod_uid, cgroup_path, '') AS unit",
            "service" => {
                ", multiIf(role = 2, ifNull(raw.src_port, 0), role = 1, ifNull(raw.dst_port, 0), \
                 least(ifNull(raw.src_port, 0), ifNull(raw.dst_port, 0))) AS service"
            }
            "peer" => {
                ", multiIf(dst_address IS NULL, '', startsWith(IPv6NumToString(assumeNotNull(dst_address)), '::ffff:') \
                 AND position(IPv6NumToString(assumeNotNull(dst_address)), '.') > 0, \
                 concat(replaceOne(toString(tupleElement(IPv6CIDRToRange(assumeNotNull(dst_address), 120), 1)), '::ffff:', ''), '/24'), \
                 concat(toString(tupleElement(IPv6CIDRToRange(assumeNotNull(dst_address), 48), 1)), '/48')) AS peer"
            }
            _ => return None,
        };
        let from = self.from("sockets", (range.first_unix_ns(), range.end_unix_ns()));
        let span_ns = range.rollup_ns;
        Some(format!(
            "(SELECT host{key}, raw.time_unix_ns - raw.time_unix_ns % {span_ns} AS time_unix_ns, {SUMMED} {from} \
             AND ifNull(state, 0) <> 10)"
        ))
    }

    /// From which table, and which rows of it.
    fn from(&self, table: &str, (first, end): (u64, u64)) -> String {
        let name = format!("{}{table}", self.table_prefix);
        let (database, name) = (identifier(&self.database), identifier(&name));
        let host = self.host.as_deref().map(|host| format!(" AND raw.host = {}", literal(host)));
        // By `time` the table is sorted.
        format!(
            "FROM {database}.{name} AS raw WHERE raw.time >= fromUnixTimestamp64Nano(toInt64({first})) \
             AND raw.time < fromUnixTimestamp64Nano(toInt64({end})){}",
            host.unwrap_or_default()
        )
    }
}

/// What a row adds to the sums of the store (`rollup.rs`). The bucket of a round-trip time is that of its three highest bits
/// below the leading one, as in `sketch.rs`.
const SUMMED: &str = "toUInt64(1) AS records, ifNull(raw.bytes_sent_delta, 0) AS bytes_sent, \
    ifNull(raw.bytes_received_delta, 0) AS bytes_received, ifNull(raw.bytes_retrans_delta, 0) AS bytes_retrans, \
    ifNull(raw.segs_out_delta, 0) AS segs_out, ifNull(raw.total_retrans_segments_delta, 0) AS retrans_segments, \
    ifNull(raw.busy_time_us_delta, 0) AS busy_time_us, ifNull(raw.rwnd_limited_us_delta, 0) AS rwnd_limited_us, \
    ifNull(raw.sndbuf_limited_us_delta, 0) AS sndbuf_limited_us, \
    toUInt64(ifNull(state = 1 AND snd_wnd_bytes = 0, 0)) AS zero_windows, toUInt64(record_kind = 2) AS closes, \
    toUInt64(record_kind = 2 AND ifNull(close_reason, 1) NOT IN (1, 2)) AS aborts, \
    toUInt32(greatest(toInt32(floor(log2(greatest(ifNull(rtt_us, 0), 1)))), 3) - 3) AS shift, \
    bitShiftLeft(bitShiftRight(toUInt64(ifNull(rtt_us, 0)), shift), shift) + (bitShiftLeft(toUInt64(1), shift) - 1) / 2 AS middle, \
    if(ifNull(rtt_us, 0) > 0, ([middle], [toUInt64(1)]), ([], [])) AS rtt";

/// A quantile of the merged sketches: the bucket in which the value of its rank lies. NULL without any value.
fn quantile_of(sketch: &str, share: &str) -> String {
    let merged = format!("sumMap({sketch})");
    format!(
        "if(empty({merged}.1), NULL, arrayFirst((middle, below) -> below >= greatest(1, ceil({share} * arraySum({merged}.2))), \
         {merged}.1, arrayCumSum({merged}.2)))"
    )
}

/// A field as the store has it.
fn column(field: &Field) -> String {
    let name = field.name;
    match field.kind {
        Kind::Word(_) => format!("raw.{name}_word AS {name}"),
        // An IPv4 address is stored as `::ffff:a.b.c.d`.
        Kind::Address => format!(
            r"replaceRegexpOne(toString(raw.{name}), '^::ffff:([0-9.]+)$', '\\1') AS {name}"
        ),
        Kind::Tags => format!(r"replaceAll(toJSONString(raw.{name}), '\\/', '/') AS {name}"),
        _ => format!("raw.{name} AS {name}"),
    }
}

fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('\\', r"\\").replace('`', r"\`"))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range {
        since_unix_ns: 90_000_000_000,
        until_unix_ns: 150_000_000_000,
        rollup_ns: 60_000_000_000,
        rollup: "sockets_minute",
    };

    #[test]
    fn a_range_of_sums_covers_the_same_minutes_on_both_sides() {
        let tables = ClickHouse { database: "d`".into(), table_prefix: "net_".into(), host: None };
        let sqlite = Dialect::Sqlite.text(&["sums", "all"], &RANGE).unwrap();
        assert!(sqlite.contains("time_unix_ns >= 60000000000 AND time_unix_ns < 150000000000"));
        let clickhouse = Dialect::ClickHouse(&tables).text(&["sums", "all"], &RANGE).unwrap();
        assert!(clickhouse.contains(r"FROM `d\``.`net_sockets`"), "{clickhouse}");
        assert!(clickhouse.contains("toInt64(60000000000)"), "{clickhouse}");
        assert!(clickhouse.contains("toInt64(180000000000)"), "{clickhouse}");
    }

    #[test]
    fn a_host_is_a_literal_whatever_it_contains() {
        let host = Some(r"a' OR 1=1 \".to_owned());
        let tables = ClickHouse { database: "d".into(), table_prefix: String::new(), host };
        let text = Dialect::ClickHouse(&tables).text(&["closes"], &RANGE).unwrap();
        assert!(text.contains(r"raw.host = 'a\' OR 1=1 \\'"), "{text}");
    }

    #[test]
    fn what_is_no_macro_stays_as_it_is() {
        for words in [&["p42", "rtt"][..], &["x"], &["sums"], &[]] {
            assert_eq!(Dialect::Sqlite.text(words, &RANGE), None, "{words:?}");
        }
    }
}
