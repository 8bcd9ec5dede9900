#!/usr/bin/env python3
"""Checks the golden vectors with code that shares nothing with the store: BLAKE3, CRC-32C, CBOR and FastCDC as their
papers and standards write them, slowly, with the standard library alone.

    scripts/check_vectors.py            a few seconds: cut points of the first 1.5 MB
    scripts/check_vectors.py --whole    the cut points of all 4 MB
"""

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VECTORS = ROOT / "cas/format/tests/vectors"
CUT_POINTS = ROOT / "cas/tests/vectors/cut_points.txt"
M32 = 0xFFFFFFFF


# BLAKE3, from the paper's section 2; unkeyed, any input length, output of any length.

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
QUARTERS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
            (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
CHUNK_START, CHUNK_END, PARENT, ROOT_FLAG = 1, 2, 4, 8


def compress(chaining, words, counter, length, flags):
    v = [*chaining, *IV[:4], counter & M32, counter >> 32, length, flags]
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(QUARTERS):
            va, vb, vc, vd = v[a], v[b], v[c], v[d]
            va = (va + vb + words[2 * i]) & M32
            vd ^= va
            vd = (vd >> 16 | vd << 16) & M32
            vc = (vc + vd) & M32
            vb ^= vc
            vb = (vb >> 12 | vb << 20) & M32
            va = (va + vb + words[2 * i + 1]) & M32
            vd ^= va
            vd = (vd >> 8 | vd << 24) & M32
            vc = (vc + vd) & M32
            vb ^= vc
            v[a], v[b], v[c], v[d] = va, (vb >> 7 | vb << 25) & M32, vc, vd
        words = [words[p] for p in PERMUTATION]
    return [v[i] ^ v[i + 8] for i in range(8)] + [v[i + 8] ^ chaining[i] for i in range(8)]


def blake3(data, out_len=32):
    def node(start, end):
        """The last compression of a sub-tree, not yet done: (chaining, words, counter, length, flags)."""
        if end - start <= 1024:
            chaining, block = IV, start
            while True:
                piece = data[block:min(block + 64, end)]
                words = struct.unpack("<16I", piece.ljust(64, b"\0"))
                last = block + 64 >= end
                flags = (CHUNK_START if block == start else 0) | (CHUNK_END if last else 0)
                if last:
                    return chaining, words, start // 1024, len(piece), flags
                chaining = compress(chaining, words, start // 1024, 64, flags)[:8]
                block += 64
        left = 1024
        while left * 2 < end - start:
            left *= 2
        children = node(start, start + left), node(start + left, end)
        words = [word for child in children for word in compress(*child)[:8]]
        return IV, words, 0, 64, PARENT

    chaining, words, _, length, flags = node(0, len(data))
    blocks = (compress(chaining, words, n, length, flags | ROOT_FLAG) for n in range(-(-out_len // 64)))
    return b"".join(struct.pack("<16I", *block) for block in blocks)[:out_len]


def crc32c(data):
    crc = M32
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ M32


# CBOR, RFC 8949, of which only the deterministic form of section 4.2.1 is read.

class Bad(Exception):
    pass


def need(truth, message):
    if not truth:
        raise Bad(message)


def cbor(data):
    value, end = item(data, 0)
    need(end == len(data), "bytes behind the CBOR")
    return value


def head(data, at):
    need(at < len(data), "CBOR is cut short")
    major, info = data[at] >> 5, data[at] & 31
    if info < 24:
        return major, info, at + 1
    need(info < 28, f"open length or reserved head {data[at]:#x}")
    width = 1 << info - 24
    need(at + 1 + width <= len(data), "CBOR is cut short")
    value = int.from_bytes(data[at + 1:at + 1 + width], "big")
    need(value >= (24, 1 << 8, 1 << 16, 1 << 32)[info - 24], f"{value} is longer than it need be")
    return major, value, at + 1 + width


def item(data, at):
    major, value, at = head(data, at)
    if major == 0:
        return value, at
    if major == 1:
        return -1 - value, at
    if major in (2, 3):
        need(at + value <= len(data), "CBOR is cut short")
        piece = data[at:at + value]
        return (piece if major == 2 else piece.decode("utf-8")), at + value
    if major == 4:
        items = []
        for _ in range(value):
            element, at = item(data, at)
            items.append(element)
        return items, at
    need(major == 5, f"major type {major} is not used")
    pairs, last = {}, b""
    for _ in range(value):
        start = at
        key, at = item(data, at)
        need(data[start:at] > last, f"key {key!r} is out of order or there twice")
        last = data[start:at]
        pairs[key], at = item(data, at)
    return pairs, at


# The formats, as docs/format.md tells them.

def opened(data, magic):
    need(data[:8] == magic, "magic")
    need(blake3(data[:-32]) == data[-32:], "BLAKE3 at the end")
    return data[8:-32]


def check_envelope(data):
    envelope = json.loads(data)
    need(sorted(envelope) == list(envelope) == ["payload", "payloadType", "signatures"], "members")
    need(json.dumps(envelope, separators=(",", ":")).encode() == data, "one line, nothing between")
    payload = base64.b64decode(envelope["payload"], validate=True)
    need(json.loads(payload)["_type"] == "https://in-toto.io/Statement/v1", "payload")
    lens = [len(base64.b64decode(one["sig"], validate=True)) for one in envelope["signatures"]]
    need(lens == [64, 70] and [one.get("keyid") for one in envelope["signatures"]] == ["66301bbf", None], "signatures")


def check_config(data):
    fields = cbor(opened(data, b"FBYCONF0"))
    need(sorted(fields) == list(range(7)) and fields[0] == fields[3] == fields[4] == fields[5] == 0, "fields")
    need(len(fields[1]) == 16, "repository id")
    check_chunker(fields[2])


def check_chunker(chunker):
    low, middle, high, level = (chunker[key] for key in range(4))
    need(64 <= low < middle < high <= 16 << 20 and middle & middle - 1 == 0 and level <= 3, "chunk sizes")


def check_record(data):
    record = cbor(opened(data, b"FBYLOGR0"))
    need((2 in record) == (record[1] > 1), "previous record")
    before = {2: "record", 3: "record-removal", 4: "record-boundary"}.get(record[1])
    need(not before or record[2] == blake3(load(before)), "digest of the record before")
    generation = record[7]
    if 10 in record:
        kind, (change,) = record[10]
        need(kind in (0, 1), "kind of a collection")
        if kind == 0:
            generation += 1
            need(change[0] == generation, "new index generation")
            need(all(part == sorted(set(part)) for part in (change[1], change[2])), "order of what goes")
    need(all(segment[1] == generation for segment in record[9]), "generation of segments")
    names = [change[0] for change in record[8]]
    need(names == sorted(set(names)), "order of refs")
    need(all(2 in change or 3 in change for change in record[8]), "a change of nothing")
    need(all(3 in change or 6 not in change for change in record[8]), "a step of nothing")


def check_state(data):
    state = cbor(opened(data, b"FBYLOGS0"))
    record = {0: None, 1: "record", 2: "record-removal", 3: "record-boundary"}[state[1]]
    need(state.get(2) == (record and blake3(load(record))), "digest of the last record")
    names = [ref[0] for ref in state[4]]
    need(names == sorted(set(names)), "order of refs")
    groups = [group[0] for group in state[6]]
    need(groups == sorted(set(groups)) and all(group <= state[3] for group in groups), "condemned generations")
    for ref in state[4]:
        need(not ref[2] or ref[2][-1][0] == ref[1], "number of a ref")
        steps = [version[7] for version in ref[2] if 7 in version]
        need(len(steps) == len(set(steps)), "a step twice")


def check_money(money):
    currency, whole, part = money
    need(len(currency) == 3 and currency.isupper() and whole < 1 << 37 and part < 10 ** 18, "money")


def check_booking(booking):
    need(len(booking[0]) == 16 and booking[2] and "/" not in booking[2], "name or tenant of a booking")
    need(1 <= booking[4] % 100 <= 12, "month of a booking")
    if 6 in booking:
        check_money(booking[6])


def check_budget(data):
    record = cbor(opened(data, b"FBYBUDR0"))
    need((2 in record) == (record[1] > 1), "previous record")
    if record[1] == 2:
        need(record[2] == blake3(load("budget")), "digest of the record before")
    need(record[7], "changes")
    for kind, (change,) in record[7]:
        need(kind in (0, 1, 2), "kind of a change")
        if kind == 1:
            check_booking(change)
        if kind == 2 and 2 in change:
            check_money(change[2])


def check_budgetstate(data):
    state = cbor(opened(data, b"FBYBUDS0"))
    need(state.get(2) == (blake3(load("budget")) if state[1] else None), "digest of the last record")
    scopes = [(account[0], account.get(1) is not None, account.get(1)) for account in state[3]]
    need(scopes == sorted(set(scopes)), "order of accounts")
    for account in state[3]:
        months = [month[0] for month in account[3]]
        need(months == sorted(set(months)), "order of months")
        for month in account[3]:
            for _, cost in month[2]:
                check_money(cost)
    ids = [booking[0][0] for booking in state[4]]
    need(ids == sorted(set(ids)), "order of bookings")
    for booking in state[4]:
        check_booking(booking[0])


def check_ledger(data):
    record = cbor(opened(data, b"FBYLEDG0"))
    need(len(record[1]) == 32 and 1 <= record[2] % 100 <= 12, "node and month")
    rows = [[row[key] for key in range(8)] for row in record[7]]
    need(rows and rows == sorted(rows) and all(1 <= row[0] <= 31 for row in rows), "order of rows")
    need(all(len(row[8]) == 6 for row in record[7]), "counters")


def check_header(data):
    need(data[:8] == b"FBYFRAME" and data[8] == 0, "magic and format")
    kind, codec, depth = data[9:12]
    need(kind in range(1, 6) and codec in (0, 1, 2) and depth <= 8, "kind, codec, depth")
    need((codec == 2) == (depth > 0) == any(data[48:80]) and (codec != 2 or kind == 1), "base of a patch")
    need(not any(data[12:16]) and not any(data[120:124]), "zero fields")
    need(struct.unpack("<I", data[124:128])[0] == crc32c(data[:124]), "CRC-32C")
    need(len(data) == 128, "length")


def table(data, at):
    count, = struct.unpack_from("<I", data, at)
    rows = [struct.unpack_from("<32s32s3I4B", data, at + 4 + 80 * n) for n in range(count)]
    for _, _, offset, stored_len, plain_len, kind, codec, depth, flags in rows:
        need(kind in range(1, 6) and codec in (0, 1, 2) and (codec == 2) == (depth > 0) == (flags == 1), "row")
        need(max(stored_len, plain_len) <= 16 << 20, "lengths of a row")
    return rows, at + 4 + 80 * count + 32 * sum(row[8] for row in rows)


def check_footer(data):
    digest, footer_len, magic = struct.unpack("<32sI8s", data[-44:])
    footer = data[:-44]
    need(magic == b"FBYPACK0" and footer_len == len(footer) and digest == blake3(footer), "trailer")
    need(footer[:8] == b"FBYFOOT0", "magic")
    rows, end = table(footer, 24)
    need(end == len(footer), "bytes behind the rows")
    ids = [row[0] for row in rows]
    need(ids == sorted(set(ids)), "order of rows")
    need(max(row[2] + 128 + row[3] for row in rows) == 266, "end of the last frame")


def check_segment(data):
    body = data[:-32]
    opened(data, b"FBYSEGM0")
    count, = struct.unpack_from("<I", body, 16)
    rows, at = table(body, 20 + 24 * count)
    numbers = struct.unpack_from(f"<{len(rows)}I", body, at)
    need(at + 4 * len(rows) == len(body), "bytes behind the numbers")
    keys = [(row[0], number) for row, number in zip(rows, numbers)]
    need(keys == sorted(set(keys)) and all(number < count for number in numbers), "order of rows")


def check_tree(data):
    (variant, (items,)) = cbor(data)
    names = [item[0] for item in items]
    need(variant in (0, 1) and names == sorted(set(names)), "order of names")
    need(variant == 0 or items, "an inner node without parts")


def check_list(data):
    (variant, (items,)) = cbor(data)
    need(variant in (0, 1) and items and all(length > 0 for _, length in items), "parts")


def check_snapshot(data):
    snapshot = cbor(data)
    need(sorted(snapshot) == list(range(5)), "fields")
    check_chunker(snapshot[3])


CHECKS = {"budget": check_budget, "budgetstate": check_budgetstate, "config": check_config, "envelope":
          check_envelope, "footer": check_footer, "frame": check_header, "ledger": check_ledger, "list": check_list,
          "record": check_record, "segment": check_segment, "snapshot": check_snapshot, "state": check_state, "tree":
          check_tree}


def load(name):
    return bytes.fromhex((VECTORS / f"{name}.hex").read_text().replace("\n", ""))


# FastCDC 2020, section 3; the gear table is MD5 of 64 equal bytes, first 8 bytes big-endian.

GEAR = [int.from_bytes(hashlib.md5(bytes([n]) * 64).digest()[:8], "big") for n in range(256)]
# Masks for averages of 2^15 to 2^20 bytes, from the public implementations (destor, restic-FastCDC).
MASKS = {15: 0x0000D90F03530000, 16: 0x0000D90303537000, 17: 0x0000D90703537000, 18: 0x0000D90707537000,
         19: 0x0000D91707537000, 20: 0x0000D91747537000}
SIZES = {"64k": (16 << 10, 16, 256 << 10), "256k": (64 << 10, 18, 1 << 20), "512k": (128 << 10, 19, 2 << 20)}
NOISE_LEN = 4_000_000


def cut(data, start, low, bits, high):
    """Length of the chunk at `start`, and whether its content decided that."""
    end = min(start + high, len(data))
    middle = min(start + (1 << bits), end)
    value = 0
    # Rolling two bytes leaves one trace: the last byte of an odd rest is not looked at.
    for stretch, mask in ((range(start + low, middle), MASKS[bits + 1]),
                          (range(max(middle, start + low), end), MASKS[bits - 1])):
        for at in stretch[:len(stretch) - (stretch.stop == end and (end - start) % 2)]:
            value = (value << 1) + GEAR[data[at]] & 0xFFFFFFFFFFFFFFFF
            if value & mask == 0:
                return at - start, True
    return end - start, end - start == high or end == NOISE_LEN


def check_cut_points(data):
    checked = 0
    for line in CUT_POINTS.read_text().splitlines():
        name, *lens = line.split()
        need(sum(map(int, lens)) == NOISE_LEN, f"{name}: the chunks are not the whole")
        start = 0
        for expected in map(int, lens):
            found, certain = cut(data, start, *SIZES[name])
            if not certain:
                break
            need(found == expected, f"{name}: cut at {start} + {found}, not {expected}")
            start += found
            checked += 1
    return checked


def main():
    need(blake3(b"").hex().startswith("af1349b9f5f9a1a6a0404dea36dcc949"), "BLAKE3 itself")
    need(crc32c(b"123456789") == 0xE3069283, "CRC-32C itself")
    names = sorted(path.stem for path in VECTORS.glob("*.hex"))
    need(names, "there are no vectors")
    for name in names:
        try:
            CHECKS[name.split("-")[0]](load(name))
        except (Bad, ValueError, KeyError, struct.error) as error:
            raise Bad(f"{name}: {error}") from error
    length = NOISE_LEN if "--whole" in sys.argv[1:] else 1_500_000
    checked = check_cut_points(blake3((7).to_bytes(8, "little"), length))
    print(f"{len(names)} objects and {checked} cut points are as they should be")


if __name__ == "__main__":
    try:
        main()
    except Bad as error:
        sys.exit(f"check_vectors: {error}")
