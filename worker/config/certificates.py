"""The files of TLS, loaded before anything starts as every connection will load them; nobody is asked anything."""

import ssl
from pathlib import Path


def check(
    table: str, cafile: Path | None, certfile: Path | None, keyfile: Path | None, password: str | None
) -> None:
    """Loads what a table's ``ssl_cafile``, ``ssl_certfile``, ``ssl_keyfile`` and ``ssl_password`` name.

    Raises:
        ValueError: a file or the password is not what it should be; begins with the key.
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
        for key, value in (("ssl_keyfile", keyfile), ("ssl_password", password)):
            if value is not None:
                raise ValueError(f"{table}.{key}: it needs {table}.ssl_certfile beside it")
        return
    asked = False

    def answer() -> str:
        nonlocal asked
        asked = True
        return password or ""

    try:
        context.load_cert_chain(certfile, keyfile, answer)
    except ssl.SSLError as error:
        if asked and password is None:
            said = f"{table}.ssl_password: nothing given; the key of {table}.ssl_certfile is encrypted"
        elif asked:
            said = f"{table}.ssl_password: a secret given; it does not open the key of {table}.ssl_certfile"
        elif error.reason == "KEY_VALUES_MISMATCH":
            said = f"{table}.ssl_keyfile: not the key of the certificate in {table}.ssl_certfile"
        else:
            said = f"{table}.ssl_certfile: no certificate with its key there and in {table}.ssl_keyfile; PEM is needed"
        raise ValueError(said) from None
    except OSError as error:
        raise ValueError(f"{table}.ssl_certfile: it or the key cannot be read ({error.strerror})") from None
