"""Opens and reads the packets of docs/hop-wire.md with nothing but what stands there: a second reader of the format."""
import hashlib, hmac, re, struct, sys


def sbox():
    box, p, q = [99] * 256, 1, 1
    while True:
        p ^= (p << 1) ^ (0x11B if p & 128 else 0)
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q = (q & 255) ^ (9 if q & 128 else 0)
        turned = q
        for n in (1, 2, 3, 4):
            turned ^= (q << n | q >> (8 - n)) & 255
        box[p] = turned ^ 99
        if p == 1:
            return box


S = sbox()


def aes(key, block):
    words, rcon = [key[i:i + 4] for i in range(0, 16, 4)], 1
    for i in range(4, 44):
        word = words[-1]
        if i % 4 == 0:
            word = bytes(S[b] for b in word[1:] + word[:1])
            word = bytes([word[0] ^ rcon]) + word[1:]
            rcon = rcon << 1 ^ (0x11B if rcon & 128 else 0)
        words.append(bytes(a ^ b for a, b in zip(words[-4], word)))
    xor = lambda state, turn: [a ^ b for a, b in zip(state, b"".join(words[4 * turn:4 * turn + 4]))]
    state = xor(block, 0)
    for turn in range(1, 11):
        state = [S[state[(5 * i) % 16]] for i in range(16)]
        if turn < 10:
            twice = [b << 1 ^ (0x11B if b & 128 else 0) for b in state]
            at = lambda i, n: i // 4 * 4 + (i + n) % 4
            state = [twice[i] ^ twice[at(i, 1)] ^ state[at(i, 1)] ^ state[at(i, 2)] ^ state[at(i, 3)] for i in range(16)]
        state = xor(state, turn)
    return bytes(state)


def ghash(key, data):
    h, y = int.from_bytes(aes(key, bytes(16)), "big"), 0
    for i in range(0, len(data), 16):
        y, v, z = y ^ int.from_bytes(data[i:i + 16].ljust(16, b"\0"), "big"), h, 0
        for bit in range(127, -1, -1):
            z ^= v if y >> bit & 1 else 0
            v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
        y = z
    return y.to_bytes(16, "big")


def unseal(secret, packet):
    expand = lambda label, n: hmac.new(secret, label + b"\1", hashlib.sha256).digest()[:n]
    for _ in range(packet[1]):
        secret = expand(b"weir hop next", 32)
    key, nonce = expand(b"weir hop packets", 16), bytes(4) + packet[8:16]
    stream = lambda n: aes(key, nonce + n.to_bytes(4, "big"))
    sealed, pad = packet[16:-16], lambda b: b + bytes(-len(b) % 16)
    sums = pad(packet[:16]) + pad(sealed) + struct.pack(">QQ", 128, len(sealed) * 8)
    tag = bytes(a ^ b for a, b in zip(ghash(key, sums), stream(1)))
    assert tag == packet[-16:], "not authentic"
    return bytes(b ^ stream(2 + i // 16)[i % 16] for i, b in enumerate(sealed))


def read(kind, inside):
    if kind == 4:
        return "floor %d" % struct.unpack_from("<Q", inside)
    if kind == 3:
        numbers = struct.unpack_from("<QIIQQQQI", inside)
        back = [numbers[0] - 1 - i for i in range(8 * len(inside[52:])) if inside[52 + i // 8] >> i % 8 & 1]
        return "report %s has %s" % (" ".join(map(str, numbers)), " ".join(map(str, back)))
    low, word = struct.unpack_from("<II", inside)
    part, asks, second, address = word >> 24 & 3, word >> 26 & 1, word >> 27 & 1, word >> 28 & 3
    text, rest = "data %d beyond %d part %d asks %d second %d" % (low, word & 0xFFFFFF, part, asks, second), inside[8:]
    if part < 2:
        received, size = struct.unpack_from("<QH", rest)
        length = [0, 0, 4, 16][address]
        end = 10 + length + (2 if length else 0)
        text += " received %d bytes %d from %s" % (received, size, rest[10:end].hex() or "-")
        rest = rest[end:][:size] if part == 0 else rest[end:]
    return text + " says " + rest.decode()


def chacha(key, counter, nonce):
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
    s = start[:]
    for turn in range(80):
        column, diagonal = turn % 4, turn // 4 % 2
        a, b, c, d = (4 * row + (column + row * diagonal) % 4 for row in range(4))
        for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = s[x] + s[y] & 0xFFFFFFFF
            s[z] ^= s[x]
            s[z] = (s[z] << n | s[z] >> (32 - n)) & 0xFFFFFFFF
    return struct.pack("<16I", *(a + b & 0xFFFFFFFF for a, b in zip(s, start)))


def chacha_open(key, more, sealed):
    nonce, sealed, tag = bytes(12), sealed[:-16], sealed[-16:]
    once, pad = chacha(key, 0, nonce)[:32], lambda b: b + bytes(-len(b) % 16)
    r, total = int.from_bytes(once[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, 0
    sums = pad(more) + pad(sealed) + struct.pack("<QQ", len(more), len(sealed))
    for i in range(0, len(sums), 16):
        total = (total + int.from_bytes(sums[i:i + 16] + b"\1", "little")) * r % ((1 << 130) - 5)
    assert (total + int.from_bytes(once[16:], "little") & (1 << 128) - 1).to_bytes(16, "little") == tag, "not authentic"
    return bytes(b ^ chacha(key, 1 + i // 64, nonce)[i % 64] for i, b in enumerate(sealed))


def derive(chain, secret, count):
    outs, mac = [b""], lambda key, data: hmac.new(key, data, hashlib.sha256).digest()
    while len(outs) <= count:
        outs.append(mac(mac(chain, secret), outs[-1] + bytes([len(outs)])))
    return outs[1:]


def noise(key, cookie, message):
    """Noise_NNpsk0, the first message: psk, e, payload."""
    sha = lambda *parts: hashlib.sha256(b"".join(parts)).digest()
    chain = sha(b"Noise_NNpsk0_25519_ChaChaPoly_SHA256")
    hashed = sha(chain, b"weir hop 1" + cookie)
    chain, mixed, _ = derive(chain, key, 3)
    hashed = sha(sha(hashed, mixed), message[:32])
    return chacha_open(derive(chain, message[:32], 2)[1], hashed, message[32:])


def read_first(key, packet, ephemeral):
    first, _, _, session, number = struct.unpack_from("<BBHIQ", packet)
    if first == 0x15:
        cookie = packet[16:48]
        proof = hmac.new(key, b"weir hop cookie" + packet[:48] + ephemeral, hashlib.sha256).digest()
        assert packet[48:] == proof, "not authentic"
        return "cookie %s session %d" % (cookie.hex(), session), ephemeral
    cookie, message = (packet[16:48], packet[48:]) if first == 0x16 else (b"", packet[16:])
    assert number == int.from_bytes(hashlib.sha256(b"weir hop key id" + key).digest()[:8], "little"), "another key"
    inside = noise(key, cookie, message)
    run, time, session, floor = struct.unpack_from("<16sQIQ", inside)
    host = inside[37:37 + inside[36]]
    listener = inside[38 + len(host):][:inside[37 + len(host)]]
    text = "hello key %d cookie %s run %s time %d session %d floor %d host %s listener %s"
    says = number, cookie.hex() or "-", run.hex(), time, session, floor, host.decode(), listener.decode()
    return text % says, message[:32]


document = open(sys.argv[1]).read()
secret = bytes.fromhex(re.search(r"^secret ([0-9a-f]+)$", document, re.M)[1])
for hexadecimal in re.findall(r"^packet ([0-9a-f]+)$", document, re.M):
    packet = bytes.fromhex(hexadecimal)
    first, epoch, _, session, number = struct.unpack_from("<BBHIQ", packet)
    assert first >> 4 == 1, "another version"
    print("epoch %d session %d number %d:" % (epoch, session, number), read(first & 15, unseal(secret, packet)))

key, ephemeral = bytes.fromhex(re.search(r"^key ([0-9a-f]+)$", document, re.M)[1]), b""
for hexadecimal in re.findall(r"^first ([0-9a-f]+)$", document, re.M):
    text, ephemeral = read_first(key, bytes.fromhex(hexadecimal), ephemeral)
    print(text)
