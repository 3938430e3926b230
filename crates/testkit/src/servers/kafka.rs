//! Apache Kafka: one node that is broker and controller.

use super::{Place, second_port};
use crate::{find_tool, run};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

/// After a kill the controller waits as long before it takes the broker back; Kafka's default of 9,000 makes a restart take 14 s.
const SESSION_MS: u32 = 3000;

pub(super) fn command(place: &Place) -> Command {
    let (addr, controller) = (place.addr, second_port(place.addr));
    let settings = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@{controller}\n\
         listeners=PLAINTEXT://{addr},CONTROLLER://{controller}\n\
         advertised.listeners=PLAINTEXT://{}\n\
         controller.listener.names=CONTROLLER\n\
         log.dirs={}\n\
         auto.create.topics.enable=false\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         broker.session.timeout.ms={SESSION_MS}\n\
         broker.heartbeat.interval.ms=500\n",
        place.advertised,
        place.file("data"),
    );
    let file = place.file("broker.properties");
    fs::write(&file, settings).unwrap();

    let format = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c"];
    run(broker().args(format).args([&file, "--ignore-formatted"]));
    let mut command = broker();
    command.args(["kafka.Kafka", &file]);
    command
}

pub(super) fn answers(addr: SocketAddr) -> bool {
    let mut kcat = Command::new(find_tool("kcat").expect("asked for before"));
    let output = kcat.args(["-b", &addr.to_string(), "-L", "-m", "2"]).output().unwrap();
    // After a kill the broker answers before the controller counts it as alive.
    String::from_utf8_lossy(&output.stdout).contains(" 1 brokers:")
}

fn broker() -> Command {
    Command::new(find_tool("weir-kafka").expect("asked for before"))
}
