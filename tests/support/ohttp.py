"""A client of oblivious HTTP (RFC 9458) with binary HTTP (RFC 9292)."""

import struct
from collections.abc import Sequence
from email.utils import formatdate

from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKeyPair

KEM, KDF = KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256
Fields = Sequence[tuple[bytes, bytes]]
NONCE_BYTES = {AEADId.AES128_GCM: 16, AEADId.CHACHA20_POLY1305: 32}


class Sealed:
    """An encapsulated request to the first key of `application/ohttp-keys`."""

    def __init__(
        self,
        keys: bytes,
        message: bytes,
        aead: AEADId = AEADId.AES128_GCM,
        ephemeral: KEMKeyPair | None = None,
    ) -> None:
        key_id, _, public = struct.unpack(">BH32s", keys[2:37])
        self.suite, self.size = CipherSuite.new(KEM, KDF, aead), NONCE_BYTES[aead]
        header = struct.pack(">BHHH", key_id, KEM.value, KDF.value, aead.value)
        recipient = self.suite.kem.deserialize_public_key(public)
        info = b"message/bhttp request\0" + header
        self.enc, self.context = self.suite.create_sender_context(recipient, info, eks=ephemeral)
        self.request = header + self.enc + self.context.seal(message)

    def open(self, answer: bytes) -> bytes:
        """Returns the response in binary HTTP, with its padding."""
        nonce, sealed, kdf = answer[: self.size], answer[self.size :], self.suite.kdf
        prk = kdf.extract(self.enc + nonce, self.context.export(b"message/bhttp response", self.size))
        key = self.suite.aead.import_key(kdf.expand(prk, b"key", self.size))
        return key.open(sealed, kdf.expand(prk, b"nonce", 12))


def number(value: int) -> bytes:
    """Returns an integer of variable length."""
    power = next(power for power in range(4) if value < 1 << ((8 << power) - 2))
    return (value | power << ((8 << power) - 2)).to_bytes(1 << power, "big")


def piece(value: bytes) -> bytes:
    return number(len(value)) + value


def write_request(
    method: bytes, path: bytes, fields: Fields, content: bytes = b"", known: bool = True
) -> bytes:
    """Returns a request with padding. Content of indeterminate length has two chunks."""
    control = b"".join(piece(each) for each in (method, b"https", b"reports.example.org", path))
    lines = b"".join(piece(name) + piece(value) for name, value in fields)
    if known:
        message = b"\0" + control + piece(lines) + piece(content) + b"\0"
    else:
        cuts = [content[:1], content[1:]]
        message = b"\2" + control + lines + b"\0" + b"".join(map(piece, filter(None, cuts))) + b"\0\0"
    return message + bytes(-len(message) % 256)


def dated(fields: Fields, seconds: float | None = None) -> Fields:
    """Returns the fields with a Date, at an instant or now."""
    return [*fields, (b"date", formatdate(seconds, usegmt=True).encode())]


def read_response(message: bytes) -> tuple[int, dict[str, str], bytes]:
    """Returns status, fields and content of a response of known length."""
    at = 1

    def next_number() -> int:
        nonlocal at
        size = 1 << (message[at] >> 6)
        value = int.from_bytes(message[at : at + size], "big") & ((1 << (8 * size - 2)) - 1)
        at += size
        return value

    def next_piece() -> bytes:
        nonlocal at
        size = next_number()
        at += size
        return message[at - size : at]

    assert message[0] == 1
    status, end, fields = next_number(), next_number(), dict[str, str]()
    end += at
    while at < end:
        name = next_piece()
        fields[name.decode()] = next_piece().decode()
    content = next_piece()
    assert set(message[at:]) <= {0}
    return status, fields, content
