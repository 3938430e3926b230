//! Quirks of agents, and known mistakes of decoders.

use wire::sflow::flow::Gateway;
use wire::sflow::{
    CounterRecord, DataFormat, DataSource, Datagram, Direction, DropReason, Fault, FlowRecord,
    FlowSample, Form, Interface, Mac, Malformed, Place, Sample,
};

use super::bytes::{datagram, flow, tlv, words};
use super::survey;

fn samples(bytes: &[u8]) -> Vec<Result<Sample<'_>, Malformed>> {
    Datagram::parse(bytes).unwrap().samples().collect()
}

/// The one flow sample of a datagram.
fn one_flow(bytes: &[u8]) -> FlowSample<'_> {
    match samples(bytes)[..] {
        [Ok(Sample::Flow(flow))] => flow,
        ref other => panic!("{other:?}"),
    }
}

fn records(flow: FlowSample<'_>) -> Vec<Result<FlowRecord<'_>, Malformed>> {
    flow.records().collect()
}

/// As sent by an Arista agent. Decoders that read six bytes report 00:00:01:00:5e:2a.
#[test]
fn macs_have_two_bytes_of_padding() {
    let body = [
        &words(&[100])[..],
        &[0xd4, 0xaf, 0xf7, 1, 2, 3, 0, 0],
        &[0x01, 0x00, 0x5e, 0x2a, 0xaa, 0x04, 0, 0],
        &words(&[0x0800]),
    ]
    .concat();
    for format in [2, 1021, 1022] {
        let bytes = datagram(&[&flow(&[&tlv(format, &body)])]);
        let ethernet = match records(one_flow(&bytes))[..] {
            [
                Ok(
                    FlowRecord::SampledEthernet(ethernet)
                    | FlowRecord::ExtendedL2TunnelEgress(ethernet)
                    | FlowRecord::ExtendedL2TunnelIngress(ethernet),
                ),
            ] => ethernet,
            ref other => panic!("{other:?}"),
        };
        assert_eq!(ethernet.dst, Mac([0x01, 0x00, 0x5e, 0x2a, 0xaa, 0x04]));
        assert_eq!(ethernet.dst.to_string(), "01:00:5e:2a:aa:04");
        assert_eq!((ethernet.length_bytes, ethernet.ethertype), (100, 0x0800));
    }
}

#[test]
fn samples_and_records_of_others_are_skipped() {
    let unknown = tlv(99 << 12 | 1, &words(&[1, 2, 3]));
    let known = tlv(1036, &words(&[5]));
    let bytes = datagram(&[&unknown, &flow(&[&unknown, &known]), &unknown]);
    match &samples(&bytes)[..] {
        [Ok(Sample::Unknown(first)), Ok(Sample::Flow(flow)), Ok(Sample::Unknown(_))] => {
            assert_eq!((first.format, first.body), (DataFormat::new(99, 1), &unknown[8..]));
            assert_eq!(first.format.to_string(), "99:1");
            match records(*flow)[..] {
                [Ok(FlowRecord::Unknown(raw)), Ok(FlowRecord::ExtendedEgressQueue(queue))] => {
                    assert_eq!((raw.format, raw.body), (DataFormat::new(99, 1), &unknown[8..]));
                    assert_eq!(queue.queue, 5);
                }
                ref other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

/// With InMon's metrics in it, other decoders lose the datagram.
#[test]
fn metrics_stand_beside_flow_samples() {
    let metrics = tlv(4300 << 12 | 1002, &super::made::metrics());
    let bytes = datagram(&[&metrics, &flow(&[])]);
    let [Ok(Sample::Metrics(metrics)), Ok(Sample::Flow(_))] = samples(&bytes)[..] else { panic!() };
    assert_eq!(metrics.data_source.to_string(), "net");
    assert_eq!(metrics.metrics.map(Result::unwrap).count(), 7);
}

#[test]
fn a_value_of_unknown_type_ends_the_values_alone() {
    let body = words(&[0, 3, 1, 0x6100_0000, 3, 7, 1, 0x6200_0000, 99, 1, 0]);
    let bytes = datagram(&[&tlv(4300 << 12 | 1002, &body), &flow(&[])]);
    let [Ok(Sample::Metrics(metrics)), Ok(Sample::Flow(_))] = samples(&bytes)[..] else { panic!() };
    let [Ok(_), Err(Fault::ValueType(99))] = metrics.metrics.collect::<Vec<_>>()[..] else {
        panic!()
    };
}

/// The whole path counts, not its first segment; and systems have the names of the specification.
#[test]
fn the_destination_is_at_the_end_of_the_last_segment() {
    let path = [2, 2, 2, 65_001, 65_002, 2, 2, 65_003, 65_004];
    let head = [1, 0x0a00_0002, 64_512, 64_513, 64_514];
    let body = words(&[&head[..], &path, &[1, 7, 100]].concat());
    let bytes = datagram(&[&flow(&[&tlv(1003, &body)])]);
    let gateway = gateway(one_flow(&bytes));
    assert_eq!((gateway.router_as, gateway.src_as, gateway.src_peer_as), (64_512, 64_513, 64_514));
    assert_eq!((gateway.dst_peer_as(), gateway.dst_as()), (Some(65_001), Some(65_004)));
    assert!(gateway.dst_as_path.systems().eq(65_001..=65_004));
    assert_eq!(gateway.dst_as_path.segments().count(), 2);
    assert!(gateway.communities.iter().eq([7]));
    assert_eq!(gateway.local_pref, 100);

    let own = words(&[&head[..], &[0, 0, 100]].concat());
    let bytes = datagram(&[&flow(&[&tlv(1003, &own)])]);
    let gateway = self::gateway(one_flow(&bytes));
    assert_eq!((gateway.dst_peer_as(), gateway.dst_as()), (None, None));
}

fn gateway(flow: FlowSample<'_>) -> Gateway<'_> {
    match records(flow)[..] {
        [Ok(FlowRecord::ExtendedGateway(gateway))] => gateway,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn padding_is_no_part_of_a_header() {
    let body = [&words(&[11, 1500, 0, 5])[..], &[0x45, 1, 2, 3, 4, 0, 0, 0]].concat();
    let bytes = datagram(&[&flow(&[&tlv(1, &body)])]);
    let [Ok(FlowRecord::SampledHeader(header))] = records(one_flow(&bytes))[..] else { panic!() };
    assert_eq!(header.header, [0x45, 1, 2, 3, 4]);
}

#[test]
fn text_is_padded_between_fields_and_may_lack_its_padding_at_the_end() {
    let acl = [&words(&[7, 5])[..], b"deny1\0\0\0", &words(&[2])].concat();
    // Ten bytes: a length, and six of text.
    let function = [&words(&[6])[..], b"ip_rcv"].concat();
    let bytes =
        datagram(&[&flow(&[&tlv(1037, &acl), &tlv(1038, &function), &tlv(1036, &words(&[1]))])]);
    match records(one_flow(&bytes))[..] {
        [
            Ok(FlowRecord::ExtendedAcl(acl)),
            Ok(FlowRecord::ExtendedFunction(function)),
            Ok(FlowRecord::ExtendedEgressQueue(_)),
        ] => {
            assert_eq!((acl.number, acl.name.0, acl.direction), (7, &b"deny1"[..], 2));
            assert_eq!(function.symbol.0, b"ip_rcv");
        }
        ref other => panic!("{other:?}"),
    }
}

/// The reader advances by declared lengths, never by what was decoded.
#[test]
fn bytes_behind_fields_and_behind_records_are_skipped() {
    let grown = tlv(1036, &words(&[5, 77, 78]));
    let mut padded = flow(&[&grown, &tlv(1039, &words(&[9]))]);
    padded.extend([0; 12]);
    let length = padded.len() as u32 - 8;
    padded[4..8].copy_from_slice(&length.to_be_bytes());
    let bytes = datagram(&[&padded, &flow(&[])]);
    let [Ok(Sample::Flow(first)), Ok(Sample::Flow(_))] = samples(&bytes)[..] else { panic!() };
    let [Ok(FlowRecord::ExtendedEgressQueue(queue)), Ok(FlowRecord::ExtendedTransitDelay(delay))] =
        records(first)[..]
    else {
        panic!()
    };
    assert_eq!((queue.queue, delay.delay_ns), (5, 9));
}

#[test]
fn brocade_wraps_samples_of_access_lists() {
    let inside = flow(&[&tlv(1036, &words(&[5]))]);
    let with_it = tlv(1991 << 12 | 1, &[&words(&[1, 2])[..], &inside].concat());
    let in_front = [&tlv(1991 << 12 | 1, &words(&[1, 2]))[..], &inside].concat();
    for wrapped in [with_it, in_front] {
        let bytes = datagram(&[&wrapped, &flow(&[])]);
        let [Ok(Sample::Flow(first)), Ok(Sample::Flow(_))] = samples(&bytes)[..] else { panic!() };
        assert_eq!(records(first).len(), 1);
    }
    let bytes = datagram(&[&tlv(1991 << 12 | 1, &words(&[1])), &flow(&[])]);
    let found = survey(&bytes);
    assert_eq!((found.samples, found.malformed.len()), (1, 1));
    assert_eq!(found.malformed[0].class(), "short");
}

/// A flow sample with this source, input and output in the compact form.
fn compact(source: u32, input: u32, output: u32) -> Vec<u8> {
    datagram(&[&tlv(1, &words(&[9, source, 1000, 9000, 2, input, output, 0]))])
}

/// Like [`compact`], in the expanded form.
fn expanded(source: [u32; 2], input: [u32; 2], output: [u32; 2]) -> Vec<u8> {
    let [class, index] = source;
    let head = [9, class, index, 1000, 9000, 2, input[0], input[1], output[0], output[1], 0];
    datagram(&[&tlv(3, &words(&head))])
}

#[test]
fn interfaces_mean_what_they_say_in_both_forms() {
    let check = |bytes: &[u8], form, input, output, direction| {
        let flow = one_flow(bytes);
        assert_eq!((flow.form, flow.input, flow.output), (form, input, output));
        assert_eq!(flow.direction(), direction);
    };
    use Interface::{Discarded, Index, Internal, Multiple, Other, Unknown};
    let of = Form::Compact;
    check(&compact(3, 3, 4), of, Index(3), Index(4), Direction::Ingress);
    check(&compact(4, 3, 4), of, Index(3), Index(4), Direction::Egress);
    check(&compact(5, 3, 4), of, Index(3), Index(4), Direction::Unknown);
    check(&compact(1 << 24 | 3, 3, 4), of, Index(3), Index(4), Direction::Unknown);
    check(&compact(3, 0, 0x3fff_ffff), of, Unknown, Internal, Direction::Unknown);
    check(
        &compact(3, 3, 0x4000_0102),
        of,
        Index(3),
        Discarded(DropReason(258)),
        Direction::Ingress,
    );
    check(&compact(3, 3, 0x8000_0000), of, Index(3), Multiple(0), Direction::Ingress);
    check(&compact(3, 3, 0x8000_0007), of, Index(3), Multiple(7), Direction::Ingress);
    let other = Other { format: 3, value: 1 };
    check(&compact(3, 3, 0xc000_0001), of, Index(3), other, Direction::Ingress);

    let of = Form::Expanded;
    // A subinterface, whose index has more than 24 bits.
    let sub = 0x4100_0001;
    check(
        &expanded([0, sub], [0, sub], [1, 258]),
        of,
        Index(sub),
        Discarded(DropReason(258)),
        Direction::Ingress,
    );
    check(&expanded([0, sub], [0, 0], [0, sub]), of, Unknown, Index(sub), Direction::Egress);
    for internal in [0x3fff_ffff, u32::MAX] {
        check(
            &expanded([0, 3], [0, internal], [2, 0]),
            of,
            Internal,
            Multiple(0),
            Direction::Unknown,
        );
    }
    let other = Other { format: 9, value: 1 };
    check(&expanded([0, 3], [0, 3], [9, 1]), of, Index(3), other, Direction::Ingress);
}

#[test]
fn a_source_has_a_class() {
    let flow = one_flow(&compact(2 << 24 | 0x00ff_ffff, 3, 4)).source;
    assert_eq!(flow, DataSource { class: DataSource::PHYSICAL, index: 0x00ff_ffff });
    assert_eq!(flow.if_index(), None);
    assert_eq!(DataSource::interface(7).if_index(), Some(7));
}

/// SONiC's counters in a format whose length does not fit: the others are unaffected.
#[test]
fn counters_that_are_broken_leave_those_beside_them() {
    let pfc = tlv(11, &words(&[1, 2, 3, 4, 5]));
    let short = tlv(1, &words(&[1, 6, 0, 100]));
    let body = [&words(&[9, 3, 3])[..], &pfc, &short, &pfc].concat();
    let bytes = datagram(&[&tlv(2, &body), &flow(&[])]);
    let [Ok(Sample::Counters(counters)), Ok(Sample::Flow(_))] = samples(&bytes)[..] else {
        panic!()
    };
    match counters.records().collect::<Vec<_>>()[..] {
        [Ok(CounterRecord::Pfc(_)), Err(malformed), Ok(CounterRecord::Pfc(last))] => {
            let format = Some(DataFormat::new(0, 1));
            assert_eq!(malformed.place, Place::Record { sample: 0, index: 1, format });
            assert_eq!(malformed.fault, Fault::Short { need: 4, have: 0 });
            assert_eq!(last.storm_restored.known(), Some(5));
        }
        ref other => panic!("{other:?}"),
    }
}

/// An agent, or an attacker, chooses the length of a header.
#[test]
fn a_header_that_is_longer_than_its_record_is_refused_alone() {
    for length in [9, 12, 0x7fff_ffff, u32::MAX, u32::MAX - 3] {
        let body = words(&[1, 1500, 4, length, 1, 2]);
        let bytes = datagram(&[&flow(&[&tlv(1, &body), &tlv(1036, &words(&[5]))])]);
        match records(one_flow(&bytes))[..] {
            [Err(malformed), Ok(FlowRecord::ExtendedEgressQueue(_))] => {
                assert_eq!(malformed.fault, Fault::Length { length, have: 8 });
            }
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn counters_that_are_not_known_are_absent() {
    let body = words(&[u32::MAX; 22]);
    let bytes = datagram(&[&tlv(2, &[&words(&[9, 3, 1])[..], &tlv(1, &body)].concat())]);
    let [Ok(Sample::Counters(counters))] = samples(&bytes)[..] else { panic!() };
    let Some(Ok(CounterRecord::Interface(interface))) = counters.records().next() else { panic!() };
    assert_eq!((interface.in_octets.known(), interface.in_errors.known()), (None, None));
}

#[test]
fn a_dropped_packet_says_why() {
    let body = words(&[9, 0, 3, 17, 3, 0, 36, 1, 1036, 4, 5]);
    let bytes = datagram(&[&tlv(5, &body)]);
    let [Ok(Sample::Dropped(dropped))] = samples(&bytes)[..] else { panic!() };
    assert_eq!((dropped.drops, dropped.input_if_index, dropped.output_if_index), (17, 3, 0));
    assert_eq!(dropped.reason.to_string(), "tc_egress");
    assert_eq!(dropped.records().count(), 1);
}
