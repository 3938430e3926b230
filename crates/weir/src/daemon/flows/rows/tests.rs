use super::*;

const ABSENT: u32 = u32::MAX;

fn counters(in_octets: u64, out_octets: u64, frames: u32) -> PortCounters {
    PortCounters {
        if_index: 1,
        if_type: 6,
        speed_bits_per_sec: 0,
        direction: 1,
        status: 3,
        in_octets,
        in_ucast_packets: frames,
        in_multicast_packets: ABSENT,
        in_broadcast_packets: ABSENT,
        in_discards: ABSENT,
        in_errors: ABSENT,
        in_unknown_protos: ABSENT,
        out_octets,
        out_ucast_packets: frames,
        out_multicast_packets: ABSENT,
        out_broadcast_packets: ABSENT,
        out_discards: ABSENT,
        out_errors: ABSENT,
        promiscuous_mode: 2,
    }
}

#[test]
fn octets_wrap_at_the_width_with_which_the_agent_counts() {
    let narrow = u64::from(u32::MAX);
    for (before, after, expected) in [
        (5, 9, Some(4)),
        // Counted with 32 bits.
        (narrow - 9, 20, Some(30)),
        (narrow, 0, Some(1)),
        // With 64 bits, past what 32 hold and past the end.
        (narrow - 9, narrow + 21, Some(30)),
        (narrow + 5, narrow + 9, Some(4)),
        (u64::MAX - 9, 20, Some(30)),
        (u64::MAX, 20, None),
        (20, u64::MAX, None),
    ] {
        let mut record = CounterRecord::new(CounterSubject::INTERFACE);
        let (a, b) = (counters(before, 7, ABSENT - 1), counters(after, 7, 3));
        fill_differences(&mut record, &a, &b);
        assert_eq!(record.in_octets_delta, expected, "in {before} {after}");
        assert_eq!(record.out_octets_delta, Some(0));
        assert_eq!(record.in_unicast_packets_delta, Some(5));
        assert_eq!(record.in_multicast_packets_delta, None);

        let (a, b) = (counters(7, before, 0), counters(7, after, 0));
        fill_differences(&mut record, &a, &b);
        assert_eq!(record.out_octets_delta, expected, "out {before} {after}");
        assert_eq!(record.in_octets_delta, Some(0));
    }
}
