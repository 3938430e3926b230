//! `/metrics` of flows, scraped by Prometheus.

use super::{Playing, Rig};
use crate::prometheus::Prometheus;
use crate::support::hop;
use ledger::HopKind;
use load::sflow::{Agent, AgentOptions, TrueFlow};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use testkit::need_tool;

#[test]
fn prometheus_scrapes_flows_with_their_intervals() {
    if !need_tool("prometheus") {
        return;
    }
    let rig = Rig::start("");
    let _playing = Playing::to(rig.weir.address());
    let prometheus = Prometheus::scraping(rig.weir.admin);

    let series = "{flow=\"pairs\",src=\"10.0.0.1\",dst=\"198.51.100.1\"}";
    let one = prometheus.until(&format!("weir_flow_bytes_per_second{series}"), |rate| rate > 1e8);
    assert_eq!(one["metric"]["src"], "10.0.0.1");
    for (suffix, least) in [("low", 1e8), ("high", 1e8), ("samples", 10.0)] {
        let name = format!("weir_flow_bytes_per_second_{suffix}{series}");
        prometheus.until(&name, |value| value > least);
    }
    // Only the definition that says so has series.
    assert!(prometheus.query("{__name__=~\"weir_flow_.*_per_second\",flow=\"quiet\"}").is_empty());
    prometheus.until("weir_flow_definition_flows{flow=\"quiet\"}", |flows| flows == 2.0);
    prometheus.until("up", |up| up == 1.0);
}

/// Datagrams of one agent in which no flow occurs twice.
fn flood(rig: &Rig, keys: u32) {
    let flow = |number: u32| TrueFlow {
        src: Ipv4Addr::from_bits(0x0a00_0000 + number),
        dst: Ipv4Addr::new(198, 51, 100, 2),
        protocol: 17,
        src_port: 53,
        dst_port: 9,
        frame_bytes: 100 + number % 1_000,
        frames_per_s: 1e6,
    };
    let options =
        AgentOptions { samples_max: 1, counters_every: Duration::MAX, ..AgentOptions::default() };
    let mut agent = Agent::new(options, vec![flow(0)], 1);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (mut bytes, mut sent) = (Vec::new(), 0);
    for number in 0..keys {
        agent.set_flows(vec![flow(number)]);
        bytes.clear();
        agent.next_datagram(&mut bytes);
        socket.send_to(&bytes, rig.weir.address()).unwrap();
        sent += 1;
        // Less than fits into the receive buffer that any machine grants.
        if sent % 100 == 0 || sent == keys {
            let received = |ledger: &_| hop(ledger, HopKind::Analysis, "").received.count;
            rig.weir.wait_for(|ledger| received(ledger) >= u64::from(sent));
        }
    }
}

#[test]
fn series_stay_few_when_keys_are_many() {
    if !need_tool("prometheus") {
        return;
    }
    let rig = Rig::start("");
    let prometheus = Prometheus::scraping(rig.weir.admin);
    prometheus.until("scrape_samples_scraped", |count| count > 0.0);
    let before = rig.admin("/metrics").1.lines().count();

    flood(&rig, 100_000);
    prometheus
        .until("weir_flow_definition_evicted_total{flow=\"pairs\"}", |count| count >= 99_000.0);
    let text = rig.admin("/metrics").1;
    let series = text.lines().filter(|line| line.starts_with("weir_flow_bytes_per_second{"));
    assert_eq!(series.count(), 20, "as many as `top` says");
    let lines = text.lines().count();
    assert!(lines <= before + 4 * 20 + 20, "{before} lines have become {lines}");
    prometheus.until("count(weir_flow_bytes_per_second{flow=\"pairs\"})", |count| count == 20.0);
    let most = format!("max_over_time(scrape_samples_scraped[1m]) <= {lines}");
    prometheus.until(&most, |count| count > 0.0);

    let top = rig.json("/flows/top?flow=pairs&n=10000");
    assert_eq!(top["flows"].as_array().unwrap().len(), 1_000, "as many as are kept");
}
