"""Validation of TLS files by loading them, as a connection does."""

import ssl
from pathlib import Path


def check(table: str, cafile: Path | None, certfile: Path | None, keyfile: Path | None) -> None:
    """Validates a table's TLS files by loading them.

    Raises ValueError for an unusable file. The message begins with the configuration key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if cafile is not None:
        try:
            context.load_verify_locations(cafile)
        except ssl.SSLError:
            raise ValueError(f"{table}.ssl_cafile: no certificate in that file; PEM is needed") from None
        except OSError as error:
            raise ValueError(f"{table}.ssl_cafile: cannot be read ({error.strerror})") from None
    if certfile is None:
        if keyfile is not None:
            raise ValueError(f"{table}.ssl_keyfile: it needs {table}.ssl_certfile, too")
        return
    asked = False

    def answer() -> str:  # without this function, OpenSSL prompts for the password on the terminal
        nonlocal asked
        asked = True
        return ""

    try:
        context.load_cert_chain(certfile, keyfile, answer)
    except ssl.SSLError as error:
        if asked:
            fault = f"{table}.ssl_keyfile: an encrypted key; a key without a password is needed"
        elif error.reason == "KEY_VALUES_MISMATCH":
            fault = f"{table}.ssl_keyfile: not the key of the certificate in {table}.ssl_certfile"
        else:
            fault = f"{table}.ssl_certfile: no certificate with its key there and in {table}.ssl_keyfile; PEM is needed"
        raise ValueError(fault) from None
    except OSError as error:
        raise ValueError(f"{table}.ssl_certfile: it or the key cannot be read ({error.strerror})") from None
