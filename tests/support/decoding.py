"""Record batches read slowly, by the words that head `worker.kafka.decoding`: a peer."""

import hashlib
import struct
import zlib
from dataclasses import dataclass, field

import crc32c
import zstandard

HEADER = struct.Struct(">qiibIhiqqqhii")
HIGHEST_BASE = 2**63 - 1 - 2**31


class BadError(Exception):
    """A batch cannot be read; the arguments are the reasons that may be given."""


@dataclass
class Log:
    """Content of a log."""

    records: list = field(default_factory=list)  # (offset, timestamp, value)
    bad: list = field(default_factory=list)  # (offset, end, size, sha256, reasons that may be given)
    end: int = -1
    with_key_or_headers: int = 0


def read(fetched, start, aborted, caps):
    log = Log(end=start)
    aborting, pending = set(), sorted(aborted or [], key=lambda one: one[1])
    at = 0
    while size := whole(fetched, at):
        batch = fetched[at : at + size]
        at += size
        (base,) = struct.unpack_from(">q", batch)
        end = end_of(batch, fetched[at : at + 8] if whole(fetched, at) else b"")
        cap = next((cap for offset, cap in reversed(caps) if offset <= base), caps[0][1])
        try:
            records = read_batch(
                batch, cap, aborting, pending if aborted is not None else None, end <= log.end
            )
        except BadError as error:
            if end > log.end:
                log.bad.append((base, end, size, hashlib.sha256(batch).hexdigest(), set(error.args)))
        else:
            for offset, timestamp, value, with_key in records:
                if log.end <= offset < end:
                    log.records.append((offset, timestamp, value))
                    log.with_key_or_headers += with_key
        log.end = max(log.end, end)
    return log


def whole(fetched, at):
    left = len(fetched) - at
    if left < 12:
        return 0
    (length,) = struct.unpack_from(">i", fetched, at + 8)
    if length < 0:
        return left
    return 12 + length if 12 + length <= left else 0


def end_of(batch, following):
    (base,) = struct.unpack_from(">q", batch)
    if base > HIGHEST_BASE:
        return 2**63 - 1
    end = base + 1
    if len(batch) >= 61 and batch[16] > 1:
        end += max(0, struct.unpack_from(">i", batch, 23)[0])
    if len(following) == 8 and base < (after := struct.unpack(">q", following)[0]):
        end = min(end, after)
    return end


def read_batch(batch, cap, aborting, pending, below):
    if len(batch) < 17 or struct.unpack_from(">i", batch, 8)[0] < 0:
        raise BadError("length")
    if batch[16] != 2:
        raise BadError("magic")
    if len(batch) < 61:
        raise BadError("length")
    base, _, _, _, checksum, attributes, last, first, highest, producer, _, _, count = HEADER.unpack_from(
        batch
    )
    if checksum != crc32c.crc32c(batch[21:]):
        raise BadError("checksum")
    if last < 0 or not 0 <= base <= HIGHEST_BASE:
        raise BadError("length")
    if pending is not None and producer >= 0:
        while pending and pending[0][1] <= base + last:
            aborting.add(pending.pop(0)[0])
        if is_abort_marker(batch, attributes):
            aborting.discard(producer)
        elif attributes & 16 and producer in aborting:
            return []
    if attributes & 32 or below:
        return []
    if attributes & 7 > 4:
        raise BadError("codec")
    data = UNPACK[attributes & 7](batch[61:], float("inf") if cap is None else cap)
    timestamp = (lambda delta: highest) if attributes & 8 else (lambda delta: wrap(first + delta))
    return read_records(data, base, last, count, timestamp)


def wrap(number):
    return (number + 2**63) % 2**64 - 2**63


def is_abort_marker(batch, attributes):
    if not attributes & 32 or attributes & 7:
        return False
    try:
        cursor = Cursor(batch, 61)
        cursor.varint(5)
        cursor.skip(1)
        cursor.varint(10)
        cursor.varint(5)
        if cursor.varint(5) < 4:
            return False
        version, kind = struct.unpack(">hh", cursor.take(4))
    except BadError:
        return False
    return version >= 0 and kind == 0


class Cursor:
    """Takes bytes from a position; a missing byte raises "length"."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise BadError("length")
        self.at += n
        return self.data[self.at - n : self.at]

    skip = take

    def varint(self, most):
        number = 0
        for k in range(most):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << 7 * k
            if byte < 0x80:
                if number >> (32 if most == 5 else 64):
                    break
                return -(number >> 1) - 1 if number & 1 else number >> 1
        raise BadError("length")


def read_records(data, base, last, count, timestamp):
    if not 0 <= count <= len(data) / 7:
        raise BadError("length")
    records, previous, log = [], -1, Cursor(data)
    for _ in range(count):
        record = Cursor(log.take(log.varint(5)))
        record.skip(1)
        stamp = timestamp(record.varint(10))
        delta = record.varint(5)
        key = record.varint(5)
        record.skip(max(key, 0))
        value = record.take(max(record.varint(5), 0))
        headers = record.varint(5)
        if headers < 0:
            raise BadError("length")
        for _ in range(headers):
            record.skip(record.varint(5))
            record.skip(max(record.varint(5), 0))
        if record.at != len(record.data) or not previous < delta <= last:
            raise BadError("length")
        previous = delta
        records.append((base + delta, stamp, value, key >= 0 or headers > 0))
    if log.at != len(data):
        raise BadError("length")
    return records


def unpack_none(section, cap):
    if len(section) > cap:
        raise BadError("size")
    return section


def unpack_gzip(section, cap):
    made, wrong = b"", None
    while True:
        member = zlib.decompressobj(31)
        try:
            made += member.decompress(section)
        except zlib.error:
            wrong = True
        if wrong or not member.eof:
            # the format does not define how much precedes the damage, so either may be found first
            raise BadError("codec", "size")
        if len(made) > cap:
            raise BadError("size", "codec")
        section = member.unused_data
        if not section:
            return made


def unpack_snappy(section, cap):
    if len(section) < 16 or section[:8] != b"\x82SNAPPY\x00":
        return bytes(snappy_block(section, cap))
    made, at = bytearray(), 16
    while at < len(section):
        if at + 4 > len(section):
            raise BadError("codec")
        (length,) = struct.unpack_from(">i", section, at)
        at += 4
        if not 0 <= length <= len(section) - at:
            raise BadError("codec")
        made += snappy_block(section[at : at + length], cap - len(made))
        at += length
    return bytes(made)


def snappy_block(block, cap):
    declared = at = 0
    while True:
        if at == min(5, len(block)):
            raise BadError("codec")
        byte = block[at]
        declared |= (byte & 0x7F) << 7 * at
        at += 1
        if byte < 0x80:
            break
    if declared >= 2**32:
        raise BadError("codec")
    if declared > 32 * len(block):
        raise BadError("codec")
    if declared > cap:
        raise BadError("size")
    made = bytearray()
    while at < len(block):
        tag = block[at]
        extra = [max(0, (tag >> 2) - 59), 1, 2, 4][tag & 3]
        number = int.from_bytes(block[at + 1 : at + 1 + extra], "little")
        at += 1 + extra
        if at > len(block):
            raise BadError("codec")
        if tag & 3 == 0:
            length = (number if extra else tag >> 2) + 1
            if at + length > len(block):
                raise BadError("codec")
            made += block[at : at + length]
            at += length
        else:
            length, distance = (tag >> 2) + 1, number
            if tag & 3 == 1:
                length, distance = (tag >> 2 & 7) + 4, number + (tag >> 5) * 256
            try:
                repeat(made, 0, distance, length, declared)
            except BadError:
                raise BadError("codec") from None
        if len(made) > declared:
            raise BadError("codec")
    if len(made) != declared:
        raise BadError("codec")
    return made


def repeat(made, floor, distance, length, most):
    if not 0 < distance <= len(made) - floor:
        raise BadError("codec")
    if len(made) + length > most:
        raise BadError("over")
    for _ in range(length):
        made.append(made[-distance])


def unpack_lz4(section, cap):
    frame = Lz4(section)
    if frame.number(4) != 0x184D2204:
        raise BadError("codec")
    flags, most = frame.number(1), frame.number(1)
    if flags >> 6 != 1 or flags & 2 or most & 0x8F or not 4 <= most >> 4 <= 7:
        raise BadError("codec")
    most = 2 ** (2 * (most >> 4) + 8)
    content = frame.number(8) if flags & 8 else None
    if flags & 1:
        frame.number(4)
    frame.number(1)
    if content is not None and content > 256 * len(section):
        raise BadError("codec")
    if content is not None and content > cap:
        raise BadError("size")
    made = bytearray()
    while head := frame.number(4):
        length = head & 0x7FFFFFFF
        block = frame.take(length)
        if flags & 16:
            frame.number(4)
        if length > most:
            raise BadError("codec")
        if head >> 31:
            if len(made) + length > cap:
                raise BadError("size")
            made += block
        else:
            lz4_block(block, made, len(made) if flags & 32 else 0, len(made) + most, cap)
    if flags & 4:
        frame.number(4)
    if frame.at != len(section) or content not in (None, len(made)):
        raise BadError("codec")
    return bytes(made)


class Lz4(Cursor):
    """Takes numbers, the lowest byte first; a missing byte raises "codec"."""

    def take(self, n):
        try:
            return super().take(n)
        except BadError:
            raise BadError("codec") from None

    def number(self, n):
        return int.from_bytes(self.take(n), "little")

    def length(self, nibble):
        length = nibble
        while nibble == 15:
            byte = self.number(1)
            length += byte
            if byte < 255:
                break
        return length


def lz4_block(block, made, floor, most, cap):
    block = Lz4(block)
    over = "size" if cap <= most else "codec"
    while True:
        token = block.number(1)
        literals = block.take(block.length(token >> 4))
        if len(made) + len(literals) > min(most, cap):
            raise BadError(over)
        made += literals
        if block.at == len(block.data):
            return
        distance = block.number(2)
        length = block.length(token & 15) + 4
        try:
            repeat(made, floor, distance, length, min(most, cap))
        except BadError as error:
            raise BadError(over) if error.args == ("over",) else error from None


def unpack_zstd(section, cap):
    at, declared, frames = 0, 0, []
    while at < len(section):
        magic = int.from_bytes(section[at : at + 4], "little")
        if 0x184D2A50 <= magic <= 0x184D2A5F:
            size = 8 + int.from_bytes(section[at + 4 : at + 8], "little")
            if at + 8 > len(section):
                raise BadError("codec")
        else:
            size, content = zstd_frame(section[at:], cap - declared)
            frames.append(section[at : at + size])
            declared += content
        at += size
        if at > len(section):
            raise BadError("codec")
    made = b""
    for frame in frames:
        try:
            made += zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj().decompress(frame)
        except zstandard.ZstdError:
            raise BadError("codec", "size") from None
        if len(made) > cap:
            raise BadError("size", "codec")
    return made


def zstd_frame(frame, cap):
    """The size of a frame, and what it declares to hold."""
    try:
        parameters = zstandard.get_frame_parameters(frame)
        header = zstandard.frame_header_size(frame)
    except zstandard.ZstdError as error:
        if len(frame) >= 6 and "window" in str(error).lower() and "unsupported" not in str(error).lower():
            raise BadError("size", "codec") from None
        raise BadError("codec", "size") from None
    if header > len(frame) or parameters.dict_id:
        raise BadError("codec")
    content = parameters.content_size
    declared = 0 if content == zstandard.CONTENTSIZE_UNKNOWN else content
    at, last, most, held = header, False, min(parameters.window_size, 2**17), 0
    while not last:
        if at + 3 > len(frame):
            raise BadError("codec")
        head = int.from_bytes(frame[at : at + 3], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        if kind == 3 or size > most:
            raise BadError("codec")
        at += 3 + (1 if kind == 1 else size)
        held += most if kind == 2 else size
    at += 4 * parameters.has_checksum
    if at > len(frame) or declared > held:
        raise BadError("codec")
    if parameters.window_size > 2**27 or declared > cap:
        raise BadError("size")
    return at, declared


UNPACK = [unpack_none, unpack_gzip, unpack_snappy, unpack_lz4, unpack_zstd]
