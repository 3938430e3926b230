//! Identifies this host independently of its name.

use std::fmt::Write as _;

/// Purpose of the machine id hash: a random number that nothing else uses.
const PURPOSE: [u8; 16] = [
    0xd0, 0x2f, 0x7c, 0x6e, 0x84, 0xa1, 0x4b, 0x6b, 0xb1, 0xa5, 0xd1, 0xc6, 0xa4, 0xa7, 0xe9, 0xf3,
];

/// The id of this host: a hash of `/etc/machine-id`, which itself should not leave the host (machine-id(5)). `None` when that
/// file is missing or not filled in, as in most containers.
pub(super) fn host_id() -> Option<String> {
    of_machine_id(&std::fs::read_to_string("/etc/machine-id").ok()?)
}

/// As `systemd-id128 machine-id --app-specific` computes it: HMAC-SHA-256 of the purpose with the machine id as the key, cut to a
/// version 4 UUID (`sd_id128_get_machine_app_specific` in systemd's src/libsystemd/sd-id128/sd-id128.c).
fn of_machine_id(text: &str) -> Option<String> {
    let id = u128::from_str_radix(text.trim_ascii(), 16).ok().filter(|&id| id != 0)?;
    if text.trim_ascii().len() != 32 {
        return None;
    }

    let hash = hmac_sha256(&id.to_be_bytes(), &PURPOSE);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(hash.get(..16)?);

    // Version 4 and RFC 9562's variant, as systemd sets them.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;

    let mut out = String::new();
    for (at, byte) in uuid.iter().enumerate() {
        let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(out, "{dash}{byte:02x}").expect("writing to a string cannot fail");
    }
    Some(out)
}

/// RFC 2104, for keys up to one block.
fn hmac_sha256(key: &[u8; 16], message: &[u8]) -> [u8; 32] {
    let padded = |pad: u8| -> Vec<u8> {
        let key = key.iter().copied().chain(std::iter::repeat(0)).take(64);
        key.map(|byte| byte ^ pad).collect()
    };
    let inner = sha256(&[&padded(0x36), message].concat());
    sha256(&[padded(0x5c).as_slice(), &inner].concat())
}

/// FIPS 180-4. Implemented here because one hash at startup does not justify a dependency.
fn sha256(message: &[u8]) -> [u8; 32] {
    let mut state: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];

    // A 1 bit, zeros, and the length in bits at the end of a block.
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());

    for block in padded.as_chunks::<64>().0 {
        compress(&mut state, block);
    }

    let mut out = [0; 32];
    for (place, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *place = word.to_be_bytes();
    }
    out
}

fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut words = [0; 64];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }

    for at in 16..64 {
        let (a, b): (u32, u32) = (words[at - 15], words[at - 2]);
        let low = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
        let high = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
        words[at] = high.wrapping_add(words[at - 7]).wrapping_add(low).wrapping_add(words[at - 16]);
    }

    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in words.iter().zip(ROUND_CONSTANTS) {
        let high = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = e & f ^ !e & g;
        let one =
            h.wrapping_add(high).wrapping_add(choice).wrapping_add(constant).wrapping_add(*word);
        let low = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let two = low.wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(one), c, b, a, one.wrapping_add(two));
    }

    for (sum, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(word);
    }
}

const ROUND_CONSTANTS: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The examples of FIPS 180-4, and lengths at the edges of a block.
    #[test]
    fn hashes_are_those_of_the_standard() {
        let check = |message: &[u8], hash: &str| assert_eq!(hex(&sha256(message)), hash);
        check(b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check(b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check(
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        );
        check(&[b'a'; 55], "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
        check(&[b'a'; 56], "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
        check(&[b'a'; 64], "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
        check(&[b'a'; 119], "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
    }

    #[test]
    fn the_machine_id_itself_is_not_told() {
        let id = "0102030405060708090a0b0c0d0e0f10\n";
        assert_eq!(of_machine_id(id).as_deref(), Some("0e5401ff-8cb4-4da0-b675-c832bd26cf71"));
        for text in ["", "uninitialized\n", "0", "00000000000000000000000000000000", "xyz"] {
            assert_eq!(of_machine_id(text), None, "{text}");
        }
    }
}
