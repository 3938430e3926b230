//! Counts, rates, sizes and times are the same words in a file, in an address, in a filter and in options of commands.

use crate::Cli;
use clap::Parser as _;
use config::{Config, ConfigError, Level, ListenerConfig, TargetConfig};
use flows::Groups;
use text::units::parse_count_in;

/// Reads a word at one place. `None` if it is refused there.
type Place = (&'static str, fn(&str) -> Option<String>);

fn first(config: Result<Config, Vec<ConfigError>>) -> Option<ListenerConfig> {
    config.ok()?.listeners.into_iter().next()
}

/// What a listener becomes with options behind its address.
fn listener(options: &str) -> Option<ListenerConfig> {
    first(Config::from_addresses(&[format!("127.0.0.1:514?{options}")], &["null:".into()]))
}

/// What a target becomes with options behind its address.
fn target(options: &str) -> Option<TargetConfig> {
    let to = format!("null:?{options}");
    let listener = first(Config::from_addresses(&["127.0.0.1:514".into()], &[to]));
    listener?.targets.into_iter().next()
}

/// What a listener becomes with these lines in a file, the second in its target.
fn file(of_listener: &str, of_target: &str) -> Option<ListenerConfig> {
    let text = format!(
        "[[listener]]\nlisten = '127.0.0.1:514'\n{of_listener}\n[[listener.target]]\nto = 'null:'\n{of_target}\n"
    );
    first(Config::parse(&text, "t"))
}

/// A target with this line in a file.
fn file_target(line: &str) -> Option<TargetConfig> {
    file("", line)?.targets.into_iter().next()
}

fn command(words: &str, word: &str) -> Option<String> {
    let words = ["weir"].into_iter().chain(words.split(' ')).chain([word]);
    Cli::try_parse_from(words).is_ok().then(String::new)
}

fn sockets(text: &str) -> Option<String> {
    sockets::filter::Filter::parse(text).ok().map(|filter| filter.to_string())
}

fn flows(text: &str) -> Option<String> {
    flows::Filter::parse(text, &Groups::default()).ok().map(|filter| format!("{filter:?}"))
}

fn shown<T: std::fmt::Debug>(value: T) -> Option<String> {
    Some(format!("{value:?}"))
}

const COUNTS: &[Place] = &[
    ("file", |w| shown(file_target(&format!("sample = '{w}'"))?.sample_one_in)),
    ("address", |w| shown(target(&format!("sample={w}"))?.sample_one_in)),
    ("filter of sockets", |w| sockets(&format!("total_retrans_segments > {w}"))),
    ("filter of flows", |w| flows(&format!("src_as = {w}"))),
    ("limit over HTTP", |w| shown(parse_count_in::<u64>(w, 1..=u64::MAX).ok()?)),
    ("gen --count", |w| command("gen --to 127.0.0.1:9 --count", w)),
    ("gen --flows", |w| command("gen --to 127.0.0.1:9 --flows", w)),
    ("verify --count", |w| command("verify --listen 127.0.0.1:9 --count", w)),
    ("verify --window", |w| command("verify --listen 127.0.0.1:9 --window", w)),
    ("flows --top", |w| command("flows --listen 127.0.0.1:9 --top", w)),
    ("query --limit", |w| command("query losses --limit", w)),
    ("query --max-rows", |w| command("query losses --max-rows", w)),
    ("sockets --count", |w| command("sockets --watch 1s --count", w)),
];

const RATES: &[Place] = &[
    ("file", |w| shown(file_target(&format!("rate_limit = '{w}'"))?.rate_limit_per_sec)),
    ("address", |w| shown(target(&format!("rate_limit={w}"))?.rate_limit_per_sec)),
    ("threshold", |w| shown(w.parse::<Level>().ok()?)),
    ("gen --rate", |w| command("gen --to 127.0.0.1:9 --rate", w)),
    ("gen sflow --rate", |w| command("gen sflow --to 127.0.0.1:9 --rate", w)),
    #[cfg(feature = "lab")]
    ("lab udp-vs-tcp --rate", |w| command("lab udp-vs-tcp --rate", w)),
    #[cfg(feature = "lab")]
    ("lab relay --rates", |w| command("lab relay --rates", w)),
];

const SIZES: &[Place] = &[
    ("file", |w| shown(file(&format!("ring_size = '{w}'"), "")?.ring_bytes)),
    ("address", |w| shown(listener(&format!("ring_size={w}"))?.ring_bytes)),
    ("filter of sockets", |w| sockets(&format!("bytes_sent > {w}"))),
    ("filter of flows", |w| flows(&format!("frame_size > {w}"))),
    ("verify --receive-buffer", |w| command("verify --listen 127.0.0.1:9 --receive-buffer", w)),
    ("gen --size", |w| command("gen --to 127.0.0.1:9 --size", w)),
];

const TIMES: &[Place] = &[
    ("file", |w| shown(file(&format!("gather = '{w}'"), "")?.gather)),
    ("address", |w| shown(listener(&format!("gather={w}"))?.gather)),
    ("filter of sockets", |w| sockets(&format!("rtt > {w}"))),
    ("filter of flows", |w| flows(&format!("transit_delay_ns > {w}"))),
    ("gen --duration", |w| command("gen --to 127.0.0.1:9 --duration", w)),
    ("top --interval", |w| command("top --interval", w)),
];

/// Checks that every place reads each word as it reads the plain one, and refuses each wrong word.
fn check(places: &[Place], alike: &[(&str, &str)], wrong: &[&str]) {
    for (name, read) in places {
        for (word, plain) in alike {
            assert!(read(word).is_some(), "{name} refuses {word}");
            assert_eq!(read(word), read(plain), "{name}: {word}");
        }
        for word in wrong {
            assert_eq!(read(word), None, "{name} takes \"{word}\"");
        }
    }
}

#[test]
fn quantities_are_the_same_words_everywhere() {
    let alike = [("1k", "1000"), ("1.5M", "1500000"), ("64Ki", "65536"), ("1000", "1k")];
    let wrong = ["1K", "1.5", "k", "1q", "1kk", ""];
    check(&COUNTS[..5], &alike, &wrong);
    check(&COUNTS[5..], &alike[..1], &wrong);
    check(RATES, &alike, &wrong);
    check(RATES, &[("10k/s", "10000"), ("1.5M/s", "1500000")], &["10k/m", "/s"]);
    check(SIZES, &[("2MiB", "2097152"), ("1.5MB", "1500000")], &["1K", "8mib", "k"]);
    check(TIMES, &[("0.5ms", "500us"), ("1ms", "1000us")], &["1y", "s"]);
}
