"""Oblivious HTTP (RFC 9458): keys and encryption."""

import hashlib
import os
import secrets
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pyhpke import AEADId, CipherSuite, ContextInterface, KDFId, KEMId, KEMKey, PyHPKEError

from worker.config.redaction import shown_path

PADDING = 256
"""Responses are padded to a multiple of this size, so that a relay does not see which answer they contain."""
_KEM, _KDF = KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256
_SUITES = {
    (_KEM.value, _KDF.value, aead.value): CipherSuite.new(_KEM, _KDF, aead)
    for aead in (AEADId.AES128_GCM, AEADId.CHACHA20_POLY1305)
}
_HEADER = struct.Struct(">BHHH")
_ENC_BYTES = 32


class UnopenedError(ValueError):
    """Raised for a request that no key opens."""


class Key:
    """A private key with its id and public configuration.

    `key_id`: by default the first byte of the public key's SHA-256. `config`: RFC 9458, section 3.1.
    """

    def __init__(self, private: X25519PrivateKey, key_id: int | None = None) -> None:
        public = private.public_key().public_bytes_raw()
        self.id = hashlib.sha256(public).digest()[0] if key_id is None else key_id
        self.private = KEMKey.from_pyca_cryptography_key(private)
        symmetric = b"".join(struct.pack(">HH", kdf, aead) for _, kdf, aead in _SUITES)
        self.config = struct.pack(
            f">BH32sH{len(symmetric)}s", self.id, _KEM.value, public, len(symmetric), symmetric
        )

    @property
    def published(self) -> bytes:
        """Content of `application/ohttp-keys` with this key only."""
        return struct.pack(">H", len(self.config)) + self.config


def new_key(path: Path) -> Key:
    """Writes a new private key as PEM, readable by its owner only.

    Raises OSError: the file exists, or cannot be written.
    """
    private = X25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    return Key(private)


def read_keys(paths: Iterable[Path]) -> dict[int, Key]:
    """Returns the keys by id, in the order of the files.

    Raises ValueError: a file cannot be read, has no such key, or has the id of another key.
    """
    keys = dict[int, Key]()
    for path in paths:
        try:
            private = serialization.load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise ValueError(f"{shown_path(path)} cannot be read ({error.strerror})") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, X25519PrivateKey):
            raise ValueError(
                f"{shown_path(path)} has no private X25519 key; ldp-worker ohttp-key new writes one"
            )
        key = Key(private)
        if key.id in keys:
            raise ValueError(f"{shown_path(path)} has the id {key.id} of another key; make a new key")
        keys[key.id] = key
    return keys


@dataclass(frozen=True, slots=True)
class Opened:
    """A decrypted request, and what encrypts its response."""

    key: Key
    message: bytes
    _suite: CipherSuite
    _context: ContextInterface
    _enc: bytes

    def seal(self, response: bytes) -> bytes:
        """Returns the encrypted response (section 4.4), with padding."""
        aead, kdf = self._suite.aead, self._suite.kdf
        size = max(aead.nonce_size, aead.key_size)
        nonce = secrets.token_bytes(size)
        prk = kdf.extract(self._enc + nonce, self._context.export(b"message/bhttp response", size))
        key = aead.import_key(kdf.expand(prk, b"key", aead.key_size))
        padded = response + bytes(-len(response) % PADDING)
        return nonce + key.seal(padded, kdf.expand(prk, b"nonce", aead.nonce_size))


def opened(keys: Mapping[int, Key], request: bytes) -> Opened:
    """Decrypts a request (RFC 9458, section 4.3).

    Raises UnopenedError: unknown key or algorithms, or the decryption fails.
    """
    header, enc = request[: _HEADER.size], request[_HEADER.size :][:_ENC_BYTES]
    try:
        key_id, *algorithms = _HEADER.unpack(header)
        key, suite = keys[key_id], _SUITES[tuple(algorithms)]
        context = suite.create_recipient_context(enc, key.private, b"message/bhttp request\0" + header)
        message = context.open(request[_HEADER.size + _ENC_BYTES :])
    except (struct.error, KeyError, ValueError, PyHPKEError):
        raise UnopenedError from None
    return Opened(key, message, suite, context, enc)
