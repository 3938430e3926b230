//! Apache Kafka: one node that is both broker and controller.

use super::place::Place;
use super::second_port;
use crate::{find_tool, run};
use std::fs;
use std::process::Command;

/// How long after a kill the controller waits before it accepts the broker again; with Kafka's default of 9,000, a restart takes
/// 14 s.
const SESSION_MS: u32 = 3000;

pub(super) fn command(place: &Place) -> Command {
    let controller = second_port(place.addr);
    let settings = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@{controller}\n\
         controller.listener.names=CONTROLLER\n\
         log.dirs={data}\n\
         auto.create.topics.enable=false\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         broker.session.timeout.ms={SESSION_MS}\n\
         broker.heartbeat.interval.ms=500\n\
         {listeners}",
        data = place.file("data"),
        listeners = listeners(place),
    );
    let file = place.file("broker.properties");
    fs::write(&file, settings).unwrap();

    let format = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c"];
    let user = ["--add-scram", "SCRAM-SHA-512=[name=weir,password=right]"];
    run(broker().args(format).args([&file, "--ignore-formatted"]).args(user));
    let mut command = broker();
    command.args(["kafka.Kafka", &file]);
    command
}

/// A secured broker also listens without TLS, on the third port, for itself and for readers.
fn listeners(place: &Place) -> String {
    let (addr, advertised, controller) = (place.addr, place.advertised, second_port(place.addr));
    let Some(tls) = &place.tls else {
        return format!(
            "listeners=PLAINTEXT://{addr},CONTROLLER://{controller}\n\
             advertised.listeners=PLAINTEXT://{advertised}\n"
        );
    };
    let plain = place.third_port();
    let login = "org.apache.kafka.common.security";
    format!(
        "listeners=SASL_SSL://{addr},PLAINTEXT://{plain},CONTROLLER://{controller}\n\
         advertised.listeners=SASL_SSL://{advertised},PLAINTEXT://{plain}\n\
         listener.security.protocol.map=\
         CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL\n\
         ssl.keystore.type=PEM\n\
         ssl.keystore.location={certificate}\n\
         sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n\
         listener.name.sasl_ssl.plain.sasl.jaas.config=\
         {login}.plain.PlainLoginModule required user_weir=\"right\";\n\
         listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
         {login}.scram.ScramLoginModule required;\n",
        certificate = tls.certificate(),
    )
}

pub(super) fn answers(place: &Place) -> bool {
    let plain = if place.tls.is_some() { place.third_port() } else { place.addr };
    let mut kcat = Command::new(find_tool("kcat").expect("asked for before"));
    let output = kcat.args(["-b", &plain.to_string(), "-L", "-m", "2"]).output().unwrap();
    // After a kill the broker answers before the controller considers it alive.
    String::from_utf8_lossy(&output.stdout).contains(" 1 brokers:")
}

fn broker() -> Command {
    Command::new(find_tool("weir-kafka").expect("asked for before"))
}
