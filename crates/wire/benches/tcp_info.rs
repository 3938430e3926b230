//! Decodes the kernel's message about one socket. The unit of each benchmark is one `tcp_info`, or one message of 504 bytes
//! as sent by Linux 6.18 for an established IPv6 connection with BBR and all attributes.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wire::inet_diag::{self, State, TcpInfo};
use wire::netlink::{Message, Messages};

/// A dump of 22 sockets, see testdata/README.md.
const DUMP: &[u8] = include_bytes!("../testdata/both-6.18.bin");

fn messages() -> impl Iterator<Item = Message<'static>> {
    Messages::new(DUMP).flatten().filter(inet_diag::is_socket)
}

/// The message of the established IPv6 connection with BBR.
fn body() -> &'static [u8] {
    let established = |message: &Message<'_>| {
        message.body[0] == 10 && message.body[1] == State::Established.number()
    };
    messages().find(established).expect("the dump has one").body
}

/// The payload of its `INET_DIAG_INFO`.
fn info() -> Vec<u8> {
    let message = inet_diag::decode(body()).expect("a message of the kernel");
    message.tcp_info.expect("an established socket has it").as_bytes().to_vec()
}

fn tcp_info(c: &mut Criterion) {
    let payload = info();
    assert_eq!(payload.len(), 280);
    let mut group = c.benchmark_group("tcp_info");
    group.bench_function("decode", |b| {
        b.iter(|| TcpInfo::decode(black_box(&payload)).map(|info| black_box(&info).length_bytes()));
    });
    group.bench_function("decode_232", |b| {
        b.iter(|| {
            TcpInfo::decode(black_box(&payload[..232])).map(|info| black_box(&info).length_bytes())
        });
    });
    let decoded = TcpInfo::decode(&payload).expect("long enough");
    group.bench_function("read_all", |b| b.iter(|| read_all(black_box(&decoded))));
    group.bench_function("decode_and_read_all", |b| {
        b.iter(|| TcpInfo::decode(black_box(&payload)).map(|info| read_all(&info)));
    });
    group.finish();
}

/// Reads every field by its accessor.
fn read_all(info: &TcpInfo<'_>) -> u64 {
    let mut sum = 0_u64;
    info.each(|_, value| sum = sum.wrapping_add(value));
    sum
}

fn message(c: &mut Criterion) {
    let mut group = c.benchmark_group("message");
    let body = body();
    group.bench_function("decode", |b| {
        b.iter(|| black_box(inet_diag::decode(black_box(body))).is_ok());
    });
    group.throughput(Throughput::Elements(messages().count() as u64));
    group.bench_function("decode_dump_of_22", |b| {
        b.iter(|| {
            Messages::new(black_box(DUMP))
                .flatten()
                .filter(inet_diag::is_socket)
                .filter(|message| black_box(inet_diag::decode(message.body)).is_ok())
                .count()
        });
    });
    group.finish();
}

criterion_group!(benches, tcp_info, message);
criterion_main!(benches);
