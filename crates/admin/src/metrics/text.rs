use super::{Exposition, Family, FamilyId, Kind, Sample, Samples, Value};
use std::fmt::Write;

/// Writes every family that has series.
pub(super) fn write(samples: &Samples<'_>, exposition: Exposition) -> String {
    let mut out = String::with_capacity(64 * 1024);
    for (family, series) in samples.iter() {
        // OpenMetrics names a counter without the suffix that its series carry.
        let name = match (exposition, family.kind) {
            (Exposition::OpenMetrics, Kind::Counter) => {
                family.name.strip_suffix("_total").unwrap_or(family.name)
            }
            _ => family.name,
        };

        put(&mut out, format_args!("# HELP {name} {}\n", family.help));
        put(&mut out, format_args!("# TYPE {name} {}\n", family.kind.label()));
        for sample in series {
            write_sample(&mut out, family, sample, exposition);
        }
    }

    if exposition == Exposition::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn write_sample(out: &mut String, family: &Family, sample: &Sample<'_>, exposition: Exposition) {
    match &sample.value {
        Value::Whole(value) => {
            write_name(out, family, "", sample, None);
            put(out, format_args!("{value}\n"));
        }
        Value::Number(value) => {
            write_name(out, family, "", sample, None);
            put(out, format_args!("{value}\n"));
        }
        Value::Histogram { bounds, counts, sum } => {
            // In these formats, a bucket includes all lower buckets.
            let mut total = 0;
            for (at, count) in counts.iter().enumerate() {
                total += count;
                if family.id == FamilyId::TargetDelay && !is_bucket_needed(counts, at) {
                    continue;
                }
                let bound = bounds.get(at).map_or("+Inf".to_owned(), |&b| bound(b, exposition));
                write_name(out, family, "_bucket", sample, Some(&bound));
                put(out, format_args!("{total}\n"));
            }

            write_name(out, family, "_sum", sample, None);
            put(out, format_args!("{sum}\n"));
            write_name(out, family, "_count", sample, None);
            put(out, format_args!("{total}\n"));
        }
    }
}

/// Whether a bucket is needed: it has counts, it is the lower bound of a bucket that has, or it is the last. With a thousand
/// targets, the empty ones would be most of the page.
fn is_bucket_needed(counts: &[u64], at: usize) -> bool {
    let holds = |at: usize| counts.get(at).is_none_or(|count| *count > 0);
    holds(at) || holds(at + 1)
}

fn write_name(
    out: &mut String,
    family: &Family,
    suffix: &str,
    sample: &Sample<'_>,
    le: Option<&str>,
) {
    out.push_str(family.name);
    out.push_str(suffix);

    let own = family.labels.iter().copied().zip(sample.labels.iter().map(|label| &**label));
    let more = sample.more.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut separator = '{';
    for (name, value) in own.chain(more).chain(le.map(|bound| ("le", bound))) {
        out.push(separator);
        separator = ',';
        out.push_str(name);
        out.push_str("=\"");
        write_escaped(out, value);
        out.push('"');
    }

    out.push_str(if separator == '{' { " " } else { "} " });
}

/// Escapes a label value. Both formats escape the same three characters.
fn write_escaped(out: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            char => out.push(char),
        }
    }
}

/// A bucket's bound in the spelling of the Go and Python clients, since the spelling is part of the series' identity: an
/// exponent below 0.0001 (`5e-05`), and in OpenMetrics always a fraction (`5.0`).
fn bound(value: f64, exposition: Exposition) -> String {
    if value < 1e-4 {
        let text = format!("{value:e}");
        return match text.split_once("e-") {
            Some((digits, exponent)) if exponent.len() == 1 => format!("{digits}e-0{exponent}"),
            _ => text,
        };
    }
    match exposition {
        Exposition::OpenMetrics => format!("{value:?}"),
        Exposition::Prometheus => value.to_string(),
    }
}

fn put(out: &mut String, args: std::fmt::Arguments<'_>) {
    out.write_fmt(args).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: f64, prometheus: &str, open_metrics: &str) {
        assert_eq!(bound(value, Exposition::Prometheus), prometheus);
        assert_eq!(bound(value, Exposition::OpenMetrics), open_metrics);
    }

    #[test]
    fn bounds_are_spelled_as_other_clients_do() {
        check(50e-6, "5e-05", "5e-05");
        check(100e-6, "0.0001", "0.0001");
        check(0.05, "0.05", "0.05");
        check(1.0, "1", "1.0");
        check(5.0, "5", "5.0");
    }

    #[test]
    fn label_values_are_escaped() {
        let mut out = String::new();
        write_escaped(&mut out, "a\"b\\c\nd");
        assert_eq!(out, r#"a\"b\\c\nd"#);
    }
}
