use super::*;
use crate::recv::{Aggregates, Ask, BATCH, ReceiveBatch, Sources, Stamps, Wait};
use crate::send::{Message, send_messages};
use std::net::UdpSocket;

/// The counter and two sockets, of which the second sends to the first, which aggregates. `None`, with a message on standard
/// error, where this process may not create a counter.
fn counted(host: &str) -> Option<(Counter, UdpSocket, UdpSocket)> {
    let counter = match Counter::make() {
        Err(Errno::PERM) => {
            testkit::skip("CAP_BPF is needed to count datagrams in the kernel", &["REQUIRE_ALL"]);
            return None;
        }
        made => made.unwrap(),
    };
    let receiver = UdpSocket::bind(host).unwrap();
    counter.attach(receiver.as_fd()).unwrap();
    aggregate(receiver.as_fd()).unwrap();
    let sender = UdpSocket::bind(host).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    Some((counter, receiver, sender))
}

/// Sends `len` bytes as one message of segments of `segment` bytes.
fn send_run(sender: &UdpSocket, len: usize, segment: u16) {
    let bytes = vec![7; len];
    let sent = send_messages(sender.as_fd(), &[Message::run(&bytes, segment)]);
    assert_eq!(sent, Ok(1));
}

/// Reads everything that is queued: how many messages, and the length of each datagram in them.
fn read(receiver: &UdpSocket) -> (usize, Vec<usize>) {
    let mut batch = ReceiveBatch::default();
    let (mut messages, mut lens) = (0, Vec::new());
    let ask = || Ask {
        count_max: BATCH,
        sources: Sources::Wanted,
        stamps: Stamps::Unwanted,
        aggregates: Aggregates::Some,
        room: None,
    };
    while let Ok(count) = batch.receive_into(receiver.as_fd(), Wait::No, ask()) {
        messages += count;
        lens.extend(batch.segments().map(|one| one.payload.len()));
    }
    (messages, lens)
}

#[test]
fn what_is_read_and_what_is_dropped_is_what_was_sent() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let Some((counter, receiver, sender)) = counted(host) else { return };
        crate::socket::set_receive_buffer(receiver.as_fd(), 20_000).unwrap();
        let mut sent = 0;
        for round in 0..200_usize {
            let (segment, count) = (1 + round * 7 % 1_400, 2 + round % 40);
            let short = round % segment;
            send_run(&sender, segment * count + short, segment as u16);
            sent += count + usize::from(short > 0);
            sender.send(b"single").unwrap();
            sender.send(b"").unwrap();
            sent += 2;
        }
        settle().unwrap();
        let (messages, lens) = read(&receiver);
        let datagrams = lens.len();
        let dropped = crate::socket::mem_info(receiver.as_fd()).unwrap().dropped_datagrams as usize;
        assert!(dropped > 0 && datagrams > messages, "{dropped} dropped, {datagrams} read");
        let lost_behind = counter.passed() as usize - (datagrams - messages);
        assert_eq!(datagrams + dropped + lost_behind, sent, "{host}");
        // The kernel's count alone reports far fewer.
        assert!(lost_behind > dropped, "{lost_behind} behind {dropped}");
    }
}

#[test]
fn segments_come_out_as_they_went_in() {
    let Some((counter, receiver, sender)) = counted("127.0.0.1:0") else { return };
    send_run(&sender, 1_000, 300);
    sender.send(b"single").unwrap();
    send_run(&sender, 128, 1);
    assert_eq!(read(&receiver).1, [&[300, 300, 300, 100, 6][..], &[1; 128]].concat());
    assert_eq!(counter.passed(), 3 + 127);
}

#[test]
fn what_is_refused_is_counted_apart() {
    let Some((counter, receiver, sender)) = counted("127.0.0.1:0") else { return };
    send_run(&sender, 1_000, 100);
    counter.refuse_new_datagrams(receiver.as_fd()).unwrap();
    send_run(&sender, 500, 100);
    assert_eq!((counter.passed(), counter.refused()), (9, 4));
    assert_eq!(read(&receiver).1.len(), 10);
    assert_eq!(crate::socket::mem_info(receiver.as_fd()).unwrap().dropped_datagrams, 1);
}

#[test]
fn another_process_may_take_it() {
    let Some((counter, receiver, sender)) = counted("127.0.0.1:0") else { return };
    let copies = counter.descriptors().map(|one| one.try_clone_to_owned().unwrap());
    let other = Counter::from_descriptors(copies).unwrap();
    other.attach(receiver.as_fd()).unwrap();
    send_run(&sender, 1_000, 100);
    assert_eq!((counter.passed(), other.passed()), (9, 9));
    drop(counter);
    send_run(&sender, 1_000, 100);
    assert_eq!(other.passed(), 18);
}

#[test]
fn the_program_is_what_its_description_says() {
    let (map, _) = std::io::pipe().unwrap();
    let fd = map.as_raw_fd();
    let text: Vec<_> = program(map.as_fd(), REFUSED, REFUSE).iter().map(disassembled).collect();
    assert_eq!(
        text,
        [
            "r2 = *(u32 *)(r1 + 176)".to_owned(),
            "if r2 == 0 goto +7".to_owned(),
            "r3 = *(u32 *)(r1 + 0)".to_owned(),
            "r3 += -9".to_owned(),
            "if r3 > 65535 goto +4".to_owned(),
            "r3 /= r2".to_owned(),
            format!("r1 = value of map {fd}"),
            "  + 8".to_owned(),
            "lock *(u64 *)(r1 + 0) += r3".to_owned(),
            "r0 = 0".to_owned(),
        ]
    );
    assert_eq!(disassembled(&EXIT), "exit");
}

/// Disassembles an instruction, from the tables of Documentation/bpf/standardization/instruction-set.rst.
fn disassembled(instruction: &Instruction) -> String {
    let Instruction { code, registers, offset, immediate } = *instruction;
    let (to, from) = (registers & 15, registers >> 4);
    let is_register = code & 8 != 0;
    let operand = if is_register { format!("r{from}") } else { immediate.to_string() };
    match (code & 7, code & !8) {
        (1, 0x61) => format!("r{to} = *(u32 *)(r{from} + {offset})"),
        (5, 0x15) => format!("if r{to} == {operand} goto +{offset}"),
        (5, 0x25) => format!("if r{to} > {operand} goto +{offset}"),
        (5, 0x95) => "exit".to_owned(),
        (7, 0x07) => format!("r{to} += {operand}"),
        (7, 0x37) => format!("r{to} /= {operand}"),
        (7, 0xb7) => format!("r{to} = {operand}"),
        // The source register says what the immediate is: 2 is the value of a map (BPF_PSEUDO_MAP_VALUE).
        (0, _) if code == 0x18 && from == 2 => format!("r{to} = value of map {immediate}"),
        (0, 0) => format!("  + {immediate}"),
        (3, _) if code == 0xdb && immediate == 0 => {
            format!("lock *(u64 *)(r{to} + {offset}) += r{from}")
        }
        _ => format!("unknown {code:#x}"),
    }
}
