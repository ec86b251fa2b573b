"""Connections to brokers: two things that kafka-python 3.0.12 leaves undone, mended where it makes its connections.

A TLS handshake waits for ever for a listener that says nothing. And what a broker says right before it hangs up, such
as why it refuses a login, is thrown away with the connection. Both touch private names; the version is pinned.
"""

import ssl
import time
from typing import Any

from kafka.errors import KafkaTimeoutError
from kafka.net import manager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

HANDSHAKE_SECONDS = 5.0
"""How long the other side may take for the whole handshake: far longer than any that speaks TLS."""


class _Heard:
    """A transport that hands on the last bytes before the end; the end itself it meets at the next look."""

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        data, error = super()._sock_recv()  # type: ignore[misc]  # of the transport beside it
        return data, None if data else error


class Plain(_Heard, KafkaTCPTransport):  # type: ignore[misc]  # kafka-python carries no types
    """A connection without TLS."""


class Tls(_Heard, KafkaSSLTransport):  # type: ignore[misc]  # kafka-python carries no types
    """A connection with TLS, whose handshake ends."""

    async def handshake(self) -> None:
        """Shakes hands.

        Raises:
            TimeoutError: the other side did not finish in `HANDSHAKE_SECONDS`.
            OSError: it refused, or speaks no TLS.
        """
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            while (wait := self._step()) is not None:
                await wait(self._sock, timeout_at=deadline)
        except KafkaTimeoutError:
            self._sock.close()
            raise TimeoutError(f"no TLS from the other side in {HANDSHAKE_SECONDS:g} s") from None
        except BaseException:
            self._sock.close()  # nobody else knows it yet
            raise

    def _step(self) -> Any:
        """Goes on with the handshake; returns what to wait by, or None at its end."""
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return self._net.wait_read
        except ssl.SSLWantWriteError:
            return self._net.wait_write
        return None


def install() -> None:
    """Has every client of this process connect this way."""
    manager.KafkaTCPTransport, manager.KafkaSSLTransport = Plain, Tls
