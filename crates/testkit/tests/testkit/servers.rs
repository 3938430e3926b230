//! Servers start, are shared, and come back at the same address.

use std::net::TcpStream;
use testkit::servers::Server;

#[test]
fn kafka_comes_back_after_a_kill() {
    check(Server::Kafka);
}

#[test]
fn nsqd_comes_back_after_a_kill() {
    check(Server::Nsqd);
}

#[test]
fn nats_comes_back_after_a_kill() {
    check(Server::Nats);
}

#[test]
fn redis_comes_back_after_a_kill() {
    check(Server::Redis);
}

#[test]
fn clickhouse_comes_back_after_a_kill() {
    check(Server::ClickHouse);
}

#[test]
fn s3_comes_back_after_a_kill() {
    check(Server::S3);
}

fn check(server: Server) {
    let Some(mut own) = server.start() else { return };
    let addr = own.addr();
    own.kill();
    assert!(TcpStream::connect(addr).is_err());
    own.restart();
    assert_eq!(own.addr(), addr);
    assert_eq!(server.shared(), server.shared());
    assert_ne!(server.shared(), Some(addr));
}
