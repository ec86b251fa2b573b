"""An authority of a test's own, and the certificates that it signs."""

import subprocess
from pathlib import Path

from deploy.local.services import program

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """An authority, and the folder of all that it signed: ``ca.pem``, and ``NAME.pem`` with ``NAME.key``.

    Args:
        folder: one that is there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "ca.pem"
        folder.mkdir(exist_ok=True)
        self._openssl(
            "req",
            "-x509",
            *_NEW,
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        )

    def sign(self, name: str, whose: str, days: int = 2) -> None:
        """Makes a key, and a certificate of it.

        Args:
            name: of the files.
            whose: for example ``IP:127.0.0.1``.
            days: until it expires; a negative number for one that has.
        """
        self._openssl(
            "req", *_NEW, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.request"
        )
        (self.folder / f"{name}.names").write_text(f"subjectAltName={whose}\n")
        self._openssl(
            *(
                "x509",
                "-req",
                "-in",
                f"{name}.request",
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
            ),
            *("-days", str(days), "-extfile", f"{name}.names", "-out", f"{name}.pem"),
        )

    def encrypt(self, name: str, password: str) -> None:
        """Makes ``NAME.encrypted`` of a key."""
        self._openssl(
            *("pkcs8", "-topk8", "-in", f"{name}.key", "-v2", "aes256", "-passout", f"pass:{password}"),
            *("-out", f"{name}.encrypted"),
        )

    def _openssl(self, *arguments: str) -> None:
        command = [program("openssl", "openssl") or "openssl", *arguments]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)
