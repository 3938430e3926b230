use super::*;
use crate::destination::{Connector, Destination, Form};
use crate::durability::Durability;
use crate::encode::{Content, Partition, RowEncoder};
use crate::fanout::{ChunkWriter, Fanout};
use crate::options::{BatchLimits, DeliveryOptions, QueueOptions, WhenFull};
use crate::stream::Stream;
use ledger::{Gauge, HopSnapshot, Reason};
use record::{Encoding, FieldSet, SocketRecord};
use std::io::{PipeReader, Read};
use testkit::{DEADLINE, wait_for};

/// A sink into a pipe that holds 64 KiB, with one row per batch.
fn sink_to_pipe(header: &'static [u8], bytes_max: usize) -> (Sink, ChunkWriter, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let form = || {
        let rows = RowEncoder::new(Encoding::Jsonl, &FieldSet::ALL, Partition::Whole);
        Form::Mixed(Box::new(rows) as Box<_>)
    };
    let rest = Arc::new(std::sync::Mutex::new(header.to_vec()));
    let mut stream = Some(Stream::new(writer.into(), rest, Durability::Written));
    let destination = move || Ok(Box::new(stream.take().unwrap()) as Box<dyn Destination>);
    let connector = Connector { form: Box::new(form), destination: Box::new(destination) };
    let sink = open(connector, bytes_max);
    let writer = writer_to(&sink);
    (sink, writer, reader)
}

fn open(connector: Connector, bytes_max: usize) -> Sink {
    let options = SinkOptions {
        name: "sink".into(),
        origin: "test".into(),
        queue: QueueOptions { bytes_max, when_full: WhenFull::DropOldest },
        batch: BatchLimits { rows: 1, ..BatchLimits::default() },
        delivery: DeliveryOptions::default(),
        spool: None,
        connector,
    };
    Sink::open(options).unwrap()
}

fn writer_to(sink: &Sink) -> ChunkWriter {
    let fanout = Fanout::default();
    fanout.attach(sink);
    fanout.writer([0; 16])
}

/// Sends a record of about 1,000 bytes in a separate chunk.
fn send(writer: &mut ChunkWriter, number: u64) {
    let host = "x".repeat(970);
    let sequence = Some(number);
    writer.record(&SocketRecord { sequence, host: Some(&host), ..SocketRecord::default() });
    writer.flush();
}

fn hop(sink: &Sink) -> HopSnapshot {
    let mut hops = Vec::new();
    sink.meter().read(&mut hops);
    let hop = hops.pop().unwrap();
    assert_eq!(hop.unaccounted, 0, "{hop:?}");
    assert_eq!(hop.received, hop.left() + hop.in_flight, "{hop:?}");
    hop
}

fn seen(sink: &Sink, what: &str, is_there: impl Fn(&HopSnapshot) -> bool) -> HopSnapshot {
    wait_for(what, || Some(hop(sink)).filter(&is_there))
}

fn numbers_in(text: &str) -> Vec<u64> {
    let number = |line: &str| {
        let rest = line.strip_prefix("{\"sequence\":").unwrap();
        rest.split_once(',').unwrap().0.parse().unwrap()
    };
    text.lines().map(number).collect()
}

#[test]
fn a_reader_that_does_not_read_costs_the_oldest_and_holds_no_other_sink() {
    let (slow, mut to_slow, mut reader) = sink_to_pipe(b"", 100_000);
    let null = crate::null(Content::Records(Encoding::Jsonl, FieldSet::ALL));
    let other = open(null, QueueOptions::default().bytes_max);
    let mut to_other = writer_to(&other);
    for number in 0..1_000 {
        send(&mut to_slow, number);
        send(&mut to_other, number);
        // So that the pipe takes the first rows, and the queue holds the rest.
        if number == 80 {
            seen(&slow, "the pipe", |hop| hop.delivered.count >= 60);
        }
    }
    seen(&other, "the other sink", |hop| hop.delivered.count == 1_000);

    let stuck = hop(&slow);
    assert!(stuck.delivered.count < 70, "{stuck:?}");
    assert!((80..100).contains(&stuck.in_flight.count), "{stuck:?}");
    assert!(stuck.gauges[&Gauge::QueueLimitBytes] == 100_000);
    let lost = stuck.dropped_for(Reason::QueueFull).count;
    assert_eq!(lost + stuck.delivered.count + stuck.in_flight.count, 1_000);

    slow.close(Instant::now() + DEADLINE);
    let reader = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    assert!(slow.wait(Instant::now() + DEADLINE).is_zero());
    let numbers = numbers_in(&reader.join().unwrap());
    assert_eq!(numbers.len() as u64, 1_000 - lost);
    assert!(numbers.is_sorted());
    // The destination got the first rows; the queue kept the last.
    assert_eq!(numbers[..61], (0..61).collect::<Vec<_>>());
    assert_eq!(*numbers.last().unwrap(), 999);
}

#[test]
fn the_header_comes_once_and_before_everything() {
    let (sink, mut writer, mut reader) = sink_to_pipe(b"header\n", 1 << 20);
    (0..3).for_each(|number| send(&mut writer, number));
    assert!(sink.wait(Instant::now() + DEADLINE).is_zero());
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(numbers_in(text.strip_prefix("header\n").unwrap()), [0, 1, 2]);
}

#[test]
fn a_closed_pipe_costs_what_comes_then_and_nothing_is_tried_again() {
    let (sink, mut writer, reader) = sink_to_pipe(b"", 1 << 20);
    send(&mut writer, 0);
    seen(&sink, "the first", |hop| hop.delivered.count == 1);
    drop(reader);
    (1..100).for_each(|number| send(&mut writer, number));
    let left = seen(&sink, "the rest", |hop| hop.in_flight.is_zero());
    assert_eq!(left.dropped_for(Reason::WriteError).count, 99);
    seen(&sink, "the gauge", |hop| hop.gauges[&Gauge::Up] == 0);
    assert_eq!(hop(&sink).event(ledger::Event::Retries), 0);
}
