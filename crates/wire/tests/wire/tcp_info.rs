//! `tcp_info` of every length.

use wire::DecodeError;
use wire::inet_diag::tcp_info::{FIELDS, Field, TCP_INFO_BYTES, TCP_INFO_MIN_BYTES, Unit};
use wire::inet_diag::{AccEcn, AccEcnLayout, TcpInfo};

/// Bytes that all differ from their neighbors and from zero.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251 + 1) as u8).collect()
}

/// The last field of `tcp_info` in each kernel, from the headers, so that a wrong offset in the table is
/// detected.
const LADDER: &[(usize, &str, &str)] = &[
    (104, "2.6", "total_retrans_segments"),
    (120, "3.15", "max_pacing_rate_bytes_per_sec"),
    (136, "4.1", "bytes_received"),
    (144, "4.2", "segs_in"),
    (160, "4.6", "data_segs_out"),
    (168, "4.9", "delivery_rate_bytes_per_sec"),
    (192, "4.10", "sndbuf_limited_us"),
    (200, "4.18", "delivered_ce_segments"),
    (224, "4.19", "reord_seen"),
    (232, "5.4", "snd_wnd_bytes"),
    (240, "6.2", "rehash"),
    (248, "6.7", "total_rto_time_ms"),
    (280, "6.18", "accecn_word"),
];

#[test]
fn each_kernel_ends_with_its_field() {
    for (len, since, last) in LADDER {
        let bytes = payload(*len);
        let info = TcpInfo::decode(&bytes).unwrap();
        let present: Vec<&Field> =
            FIELDS.iter().filter(|field| field.read(&info).is_some()).collect();
        let field = present.last().unwrap();
        assert_eq!((field.name, field.since), (*last, *since));
        assert_eq!(field.offset + field.width, *len);
    }
}

#[test]
fn the_table_covers_the_structure_without_gaps() {
    let mut end = 0;
    let mut words: Vec<(usize, usize, u64)> = Vec::new();
    for field in FIELDS {
        let bits = field.width as u32 * 8;
        let (shift, count) = field.bits.unwrap_or((0, bits));
        let mask = (u64::MAX >> (64 - count)) << shift;
        match words.last_mut() {
            Some((offset, _, used)) if *offset == field.offset => {
                assert_eq!(*used & mask, 0, "{} overlaps", field.name);
                *used |= mask;
            }
            _ => {
                assert_eq!(field.offset, end, "{}", field.name);
                end += field.width;
                words.push((field.offset, field.width, mask));
            }
        }
    }
    assert_eq!(end, TCP_INFO_BYTES);
    for (offset, width, used) in words {
        // Bits 3 to 7 of byte 7 are unused.
        let whole = if offset == 7 { 0b111 } else { u64::MAX >> (64 - width * 8) };
        assert_eq!(used, whole, "{offset}");
    }
}

#[test]
fn names_end_in_their_unit() {
    for field in FIELDS {
        let name = field.name;
        let fits = match field.unit {
            Unit::Microseconds => name.ends_with("_us"),
            Unit::Milliseconds => name.ends_with("_ms"),
            Unit::BytesPerSecond => name.ends_with("_bytes_per_sec"),
            Unit::Bytes => name.ends_with("_bytes") || name.starts_with("bytes_"),
            Unit::Segments => {
                name.ends_with("_segments")
                    || name.contains("segs_")
                    || ["dsack_dups", "rcv_ooopack"].contains(&name)
            }
            Unit::None => !["_us", "_ms", "_bytes"].iter().any(|unit| name.ends_with(unit)),
        };
        assert!(fits, "{name} counts {:?}", field.unit);
        assert!(!field.meaning.is_empty() && field.meaning.ends_with('.'), "{name}");
    }
}

/// Every length, not only those of real kernels: a field is present if all its bytes are.
#[test]
fn every_length_from_104_on() {
    for len in TCP_INFO_MIN_BYTES..=320 {
        let bytes = payload(len);
        let info = TcpInfo::decode(&bytes).unwrap();
        assert_eq!(info.length_bytes(), len);
        assert_eq!(info.as_bytes(), &bytes[..len.min(280)]);
        assert_eq!(info.tail(), bytes.get(280..).unwrap_or_default());
        let mut seen = 0;
        info.each(|field, value| {
            assert_eq!(field.read(&info), Some(value), "{} of {len}", field.name);
            seen += 1;
        });
        for field in FIELDS {
            let end = field.offset + field.width;
            assert_eq!(
                field.read(&info).is_some(),
                len >= end.max(field.needs),
                "{} of {len}",
                field.name
            );
            let Some(value) = field.read(&info).filter(|_| field.bits.is_none()) else { continue };
            let mut word = [0; 8];
            let at = if cfg!(target_endian = "little") { 0 } else { 8 - field.width };
            word[at..at + field.width].copy_from_slice(&bytes[field.offset..end]);
            assert_eq!(value, u64::from_ne_bytes(word), "{}", field.name);
        }
        assert_eq!(seen, FIELDS.iter().filter(|field| field.read(&info).is_some()).count());
    }
}

#[test]
fn shorter_is_refused() {
    for len in 0..TCP_INFO_MIN_BYTES {
        let refused = DecodeError::ShortAttribute { kind: 2, need: 104, have: len as u32 };
        assert_eq!(TcpInfo::decode(&payload(len)), Err(refused));
    }
}

#[test]
fn bits_of_bytes_that_were_padding_once_are_absent_there() {
    let of = |len| {
        let bytes = payload(len);
        let info = TcpInfo::decode(&bytes).unwrap();
        (info.delivery_rate_app_limited().is_some(), info.fastopen_client_fail().is_some())
    };
    assert_eq!(
        [of(160), of(168), of(224), of(232)],
        [(false, false), (true, false), (true, false), (true, true)]
    );
}

/// The offsets of the C structure, by hand.
#[test]
#[cfg(target_endian = "little")]
fn accessors_read_their_bytes() {
    let mut bytes = [0; 280];
    bytes[0] = 1;
    bytes[5] = 0b111;
    bytes[6] = 0xa7; // scales: sent 7, received 10
    bytes[7] = 0b101; // application limited, fast open failed for reason 2
    bytes[68..72].copy_from_slice(&1500_u32.to_le_bytes());
    bytes[104..112].copy_from_slice(&u64::MAX.to_le_bytes());
    bytes[148..152].copy_from_slice(&77_u32.to_le_bytes());
    bytes[240..244].copy_from_slice(&[1, 2, 3, 4]);
    let info = TcpInfo::decode(&bytes).unwrap();
    assert_eq!((info.state(), info.options()), (Some(1), Some(7)));
    assert_eq!((info.snd_wscale(), info.rcv_wscale()), (Some(7), Some(10)));
    assert_eq!((info.delivery_rate_app_limited(), info.fastopen_client_fail()), (Some(1), Some(2)));
    assert_eq!((info.rtt_us(), info.min_rtt_us()), (Some(1500), Some(77)));
    assert_eq!(info.pacing_rate_bytes_per_sec(), Some(u64::MAX));
    assert_eq!((info.total_rto(), info.total_rto_recoveries()), (Some(0x0201), Some(0x0403)));
}

/// The two layouts of `include/uapi/linux/tcp.h`, by hand.
#[test]
#[cfg(target_endian = "little")]
fn accurate_ecn_is_read_in_the_layout_of_the_kernel_that_wrote_it() {
    let check = |last: [u8; 4], layout, expected| {
        let mut bytes = [0; 280];
        bytes[276..].copy_from_slice(&last);
        assert_eq!(TcpInfo::decode(&bytes).unwrap().accecn(layout), expected, "{last:?}");
    };
    let of = |ecn_mode, opt_seen, fail_mode, options2| {
        Some(AccEcn { ecn_mode, opt_seen, fail_mode, options2 })
    };
    // 6.18: u16 fail mode, u16 option seen.
    check([0, 0, 0, 0], AccEcnLayout::Halves, of(None, 0, 0, None));
    check([0b1010, 0, 2, 0], AccEcnLayout::Halves, of(None, 2, 0b1010, None));
    check([16, 0, 0, 0], AccEcnLayout::Halves, None);
    check([0, 0, 4, 0], AccEcnLayout::Halves, None);
    check([0, 1, 0, 0], AccEcnLayout::Halves, None);
    // 7.0: ecn_mode 2, option seen 1, failed 0b1010, options2 0x112233.
    check(
        [2 | 1 << 2 | 0b1010 << 4, 0x33, 0x22, 0x11],
        AccEcnLayout::Bits,
        of(Some(2), 1, 0b1010, Some(0x11_2233)),
    );
    check([0; 4], AccEcnLayout::Bits, of(Some(0), 0, 0, Some(0)));
    for layout in [AccEcnLayout::Halves, AccEcnLayout::Bits] {
        assert_eq!(TcpInfo::decode(&payload(279)).unwrap().accecn(layout), None);
    }
}

#[test]
fn the_release_tells_the_layout_of_accurate_ecn() {
    let check =
        |release, layout| assert_eq!(AccEcnLayout::of_release(release), layout, "{release}");
    for release in ["6.18", "6.18.44-fc-v669", "6.19.0-rc1+", "6.18-rc7"] {
        check(release, Some(AccEcnLayout::Halves));
    }
    for release in ["7.0", "7.0.3-amd64", "7.12.1", "10.1"] {
        check(release, Some(AccEcnLayout::Bits));
    }
    for release in
        ["6.17.9", "6.20", "5.4.0-200-generic", "6", "7", "", "linux", "6.x", "-6.18", "6..18"]
    {
        check(release, None);
    }
}

#[test]
fn what_is_written_is_read_and_nothing_else_changes() {
    for field in FIELDS {
        for value in [u64::MAX, 0, 0x5aa5_c33c_9669_f00f] {
            let mut bytes = payload(280);
            field.write(&mut bytes, value);
            let before = payload(280);
            let (before, after) =
                (TcpInfo::decode(&before).unwrap(), TcpInfo::decode(&bytes).unwrap());
            for other in FIELDS.iter().filter(|other| other.name != field.name) {
                assert_eq!(
                    other.read(&after),
                    other.read(&before),
                    "{} moved {}",
                    field.name,
                    other.name
                );
            }
            let bits = field.bits.map_or(field.width as u32 * 8, |(_, count)| count);
            assert_eq!(
                field.read(&after),
                Some(value & (u64::MAX >> (64 - bits))),
                "{}",
                field.name
            );
        }
        let mut short = [1; 1];
        field.write(&mut short, 0);
        assert_eq!(short[0], u8::from(field.offset + field.width > 1), "{}", field.name);
    }
}
