//! `weir flows` as a process: sFlow over a socket and out of a capture.

use load::sflow::{Agent, AgentOptions, TrueFlow};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use testkit::{MmdbField, TempDir, mmdb};
use wire::sflow::counter::{HostDescription, PortName};
use wire::sflow::{
    Address, CounterRecord, CountersSample, DataSource, Datagram, Form, Records, Text, Writer,
};

/// A running `weir flows --json`.
struct Flows {
    process: Child,
    address: String,
    lines: Lines<BufReader<ChildStdout>>,
    errors: BufReader<std::process::ChildStderr>,
}

impl Flows {
    fn start(more: &[&str]) -> Flows {
        let mut process = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["flows", "--listen", "127.0.0.1:0", "--json", "--interval", "100ms"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        let rest = line.strip_prefix("weir flows: listening on udp://");
        let address =
            rest.unwrap_or_else(|| panic!("{line}")).split(',').next().unwrap().to_owned();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Flows { process, address, lines, errors }
    }

    /// The first figures for which this holds. It prints some every 100 ms, so that they come, or the test ends with it.
    fn until(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        for line in self.lines.by_ref().take(600) {
            let figures = serde_json::from_str(&line.unwrap()).unwrap();
            if is_wanted(&figures) {
                return figures;
            }
        }
        panic!("it never came");
    }

    /// Ends it, and returns what it says of every datagram.
    fn end(mut self) -> String {
        testkit::signal(&self.process, "TERM");
        assert!(self.process.wait().unwrap().success());
        let mut last = String::new();
        self.errors.read_line(&mut last).unwrap();
        last.strip_prefix("weir flows: ").unwrap().to_owned()
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().unwrap()
}

/// Plays agents, and returns how many datagrams were sent and how many lost.
fn play(args: &[&str]) -> (u64, u64) {
    let output = weir(&[&["gen", "sflow"], args].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let first = text.lines().next().unwrap().replace(',', "");
    let numbers: Vec<u64> = first.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers.get(1).copied().unwrap_or(0))
}

#[test]
fn figures_are_right_though_half_of_the_datagrams_are_lost() {
    let mut flows = Flows::start(&["--keys", "src", "--aggregate", "sum"]);
    let args = ["--to", &flows.address, "--agents", "3", "--traffic", "10Gbit"];
    let (sent, lost) = play(&[&args[..], &["--loss", "50", "--duration", "2s"]].concat());
    assert!(lost > sent / 2, "{lost} of {sent}");

    let figures = flows.until(|figures| figures["datagrams"]["read"] == sent);
    assert_eq!(figures["datagrams"]["dropped_by_kernel"], 0);
    // Three agents with 10 Gbit/s for 2 s: half of it, a quarter, and two eighths.
    let all_bytes = 3.0 * 2.0 * 10e9 / 8.0;
    let flows_shown = figures["flows"].as_array().unwrap();
    assert_eq!(flows_shown.len(), 4);
    for flow in flows_shown {
        let src = flow["key"]["src"].as_str().unwrap();
        let share = match src {
            "10.0.0.1" => 0.5,
            "10.0.0.2" => 0.25,
            _ => 0.125,
        };
        let number = |name: &str| flow["total"][name].as_f64().unwrap();
        let truth = all_bytes * share;
        let half_width = (number("high") - number("low")) / 2.0;
        // Agents and losses are those of a seed: what is held once is held always.
        assert!((number("value") - truth).abs() < 1.5 * half_width, "{src}: {flow} of {truth}");
    }

    let agents = figures["agents"].as_array().unwrap();
    let known_lost: u64 = agents.iter().map(|agent| agent["lost"].as_u64().unwrap()).sum();
    // Those that were lost before the first of an agent's and behind its last are not missed.
    assert!(known_lost <= lost && known_lost + 60 > lost, "{known_lost} of {lost}");
    let loss = agents[0]["samplers"][0]["path_loss"].as_f64().unwrap();
    assert!((0.3..0.7).contains(&loss), "{loss}");

    let account = flows.end();
    let expected = format!("{sent} datagrams = {sent} read + 0 duplicate + 0 malformed");
    assert!(account.replace(',', "").starts_with(&expected), "{account}");
}

#[test]
fn what_passes_its_threshold_is_told_once() {
    let threshold = ["--threshold", "heavy: flow > 3Gbit/s", "--threshold", "agent loss > 20%"];
    let mut flows = Flows::start(&[&["--keys", "src", "--events"], &threshold[..]].concat());
    let args = ["--to", &flows.address, "--agents", "1", "--traffic", "10Gbit", "--loss", "50"];
    play(&[&args[..], &["--duration", "3s"]].concat());

    let (mut heavy, mut lost) = (0, 0);
    while heavy + lost < 2 {
        let event = flows.until(|_| true);
        assert_eq!(event["change"], "raised", "{event}");
        match event["threshold"].as_str() {
            Some("heavy") => {
                // Half of the traffic is its, a quarter that of the next.
                assert_eq!(event["of"]["key"]["src"], "10.0.0.1", "{event}");
                assert!(event["figure"]["value"].as_f64().unwrap() >= 3e9 / 8.0, "{event}");
                heavy += 1;
            }
            _ => {
                assert_eq!(event["of"]["agent"], "192.0.2.1", "{event}");
                lost += 1;
            }
        }
    }
    assert_eq!((heavy, lost), (1, 1));
    assert!(flows.end().contains("0 malformed"));
}

#[test]
fn what_is_not_sflow_is_counted() {
    let mut flows = Flows::start(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&b"GET / HTTP/1.1"[..], b"", &[0, 0, 0, 5]] {
        socket.send_to(bytes, &flows.address).unwrap();
    }
    let figures = flows.until(|figures| figures["datagrams"]["received"] == 3);
    assert_eq!(figures["datagrams"]["malformed"], 3);
    assert_eq!(figures["faults"], serde_json::json!({ "version": 1, "truncated": 2 }));
    assert!(flows.end().contains("3 malformed"));
}

/// A pcap of what was sent.
pub(crate) fn capture(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (number, payload) in datagrams.iter().enumerate() {
        let len = payload.len() as u16;
        let mut packet = vec![0x45, 0];
        packet.extend((len + 28).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        packet.extend([0x18, 0xc7, 0x18, 0xc7]);
        packet.extend((len + 8).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        for word in [1_700_000_000 + number as u32, 0, packet.len() as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

#[test]
fn a_capture_is_read_shown_and_dumped() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(testkit::DEADLINE)).unwrap();
    let to = receiver.local_addr().unwrap().to_string();
    let (sent, _) = play(&["--to", &to, "--duration", "500ms", "--traffic", "1Gbit"]);
    let mut buffer = vec![0; 1 << 16];
    let datagrams: Vec<Vec<u8>> = (0..sent)
        .map(|_| {
            let len = receiver.recv(&mut buffer).unwrap();
            buffer[..len].to_vec()
        })
        .collect();
    let dir = TempDir::new();
    let file = dir.file("sflow.pcap");
    fs::write(&file, capture(&datagrams)).unwrap();
    let file = file.to_str().unwrap();

    let output = weir(&["flows", "--pcap", file, "--keys", "src,dst_port"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("10.0.0.1  40000"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let output = weir(&["flows", "--pcap", file, "--dump"]);
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len() as u64, sent);
    let record = &lines[0]["samples"][0]["records"][0];
    assert_eq!(record["record"], "sampled_header");
    assert_eq!(record["packet"]["ip"]["dst"], "198.51.100.1");

    for page in ["--agents", "--counters"] {
        let output = weir(&["flows", "--pcap", file, page]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("192.0.2.1"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn flows_are_told_apart_by_who_routes_them_and_where_they_come_from() {
    let dir = TempDir::new();
    let country = [("country_code", MmdbField::Text("NL")), ("asn", MmdbField::Text("AS64500"))];
    fs::write(dir.file("places.mmdb"), mmdb("lite", &[("10.0.0.0/8", &country)])).unwrap();
    let datagrams: Vec<Vec<u8>> = {
        let flow = |last| TrueFlow {
            src: [10, 0, 0, last].into(),
            dst: [198, 51, 100, 1].into(),
            protocol: 17,
            src_port: 53,
            dst_port: 9,
            frame_bytes: 500,
            frames_per_s: 10_000.0,
        };
        let mut agent = Agent::new(AgentOptions::default(), vec![flow(1), flow(2)], 1);
        let mut next = || {
            let mut bytes = Vec::new();
            agent.next_datagram(&mut bytes);
            bytes
        };
        (0..100).map(|_| next()).collect()
    };
    fs::write(dir.file("sflow.pcap"), capture(&datagrams)).unwrap();

    let pcap = dir.text("sflow.pcap");
    let keys = ["flows", "--pcap", &pcap, "--json", "--keys", "asn(src),country(src),asn(dst)"];
    let output = weir(&keys);
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("asn(src) needs an ASN or country database. Fix: add --mmdb FILE"),
        "{said}"
    );

    let mmdb = dir.text("places.mmdb");
    let keys = ["flows", "--pcap", &pcap, "--json", "--keys", "asn(src),country(src)"];
    let output = weir(&[&keys[..], &["--mmdb", &mmdb, "--filter", "country(src) = nl"]].concat());
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let key = json!({ "asn(src)": "AS64500", "country(src)": "NL" });
    assert_eq!(figures["flows"].as_array().unwrap().len(), 1);
    assert_eq!(figures["flows"][0]["key"], key, "{figures}");

    let output = weir(&[&keys[..], &["--mmdb", &pcap]].concat());
    assert_eq!(output.status.code(), Some(65));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("it is not an MMDB file"), "{said}");
}

/// A terminal obeys control characters, those from 128 to 159 too, and shows text in another order after some marks.
#[test]
fn no_text_of_an_agent_reaches_the_terminal_as_it_is() {
    let hostile = Text("\u{1b}]0;owned\u{7}\n\r\u{9b}31m\u{7f}\u{202e}\u{2028}\"} end".as_bytes());
    let host = HostDescription {
        hostname: hostile,
        uuid: [0; 16],
        machine_type: 3,
        os_name: 2,
        os_release: hostile,
    };
    let records =
        [CounterRecord::HostDescription(host), CounterRecord::PortName(PortName { name: hostile })];
    let (mut bytes, address) = (Vec::new(), Address::V4([192, 0, 2, 1].into()));
    let sample = CountersSample {
        form: Form::Compact,
        sequence: 1,
        source: DataSource::interface(1),
        raw_records: Records::EMPTY,
    };
    Writer::begin(&mut bytes, &Datagram::new(address, 0, 1, 1)).counters(&sample, &records);
    let dir = TempDir::new();
    fs::write(dir.file("sflow.pcap"), capture(&[bytes])).unwrap();

    let pcap = dir.text("sflow.pcap");
    for page in ["--dump", "--agents", "--counters", "--json"] {
        let output = weir(&["flows", "--pcap", &pcap, page]);
        assert!(output.status.success(), "{page}: {output:?}");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let is_obeyed =
            |one: char| one != '\n' && (one.is_control() || matches!(one, '\u{2028}'..='\u{202e}'));
        assert!(!text.contains(is_obeyed), "{page}: {text:?}");
        if page == "--dump" {
            assert_eq!(text.lines().count(), 2, "a datagram, and the account: {text:?}");
            assert_eq!(text.matches("owned").count(), 3, "{text}");
        }
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let told = |args: &[&str]| {
        let output = weir(&[&["flows"], args].concat());
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let check = |args: &[&str], code: i32, words: &str| {
        let (ended, text) = told(args);
        assert_eq!(ended, code, "{text}");
        assert!(text.contains(words), "{text}");
    };
    let listen = ["--listen", "127.0.0.1:0"];
    let with = |more: [&'static str; 2]| [listen, more].concat();
    check(&["--admin", "127.0.0.1:1"], 69, "no daemon answers");
    check(&["--keys", "dst"], 64, "--listen");
    check(&with(["--keys", "src_prt"]), 64, "did you mean \"src_port\"?");
    check(&with(["--filter", "protocol = "]), 64, "at \"the end\": expected a value");
    check(&with(["--interval", "0s"]), 64, "--interval");
    check(&with(["--group", "lab"]), 64, "write for example lab=10.0.0.0/8");
    let threshold = |text| [&listen[..], &["--events", "--threshold", text]].concat();
    check(&with(["--events", "--json"]), 64, "--threshold");
    check(&threshold("flow"), 64, "there is no >");
    check(&threshold("flow > 3"), 64, "a bit rate, such as \"2Gbit/s\"");
    check(&threshold("interface in_us > 3%"), 64, "none of in_bits, out_bits");
    check(&threshold("flow > 1Gbit/s for 2"), 64, "write 2s for seconds");
    check(&["--listen", "unix:/tmp/x"], 64, "over UDP");
    check(&["--pcap", "/nowhere.pcap"], 66, "/nowhere.pcap");
    check(&["--pcap", "/proc/self/exe"], 66, "neither a pcap nor a pcapng");
}
