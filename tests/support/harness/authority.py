"""A certificate authority of a test."""

import subprocess
from pathlib import Path

from deploy.local.services import program

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """A certificate authority with ``ca.pem``, ``NAME.pem``, ``NAME.key``."""

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
        """Creates a key and a certificate, for example of ``IP:127.0.0.1``."""
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
        """Writes ``NAME.encrypted``."""
        self._openssl(
            *("pkcs8", "-topk8", "-in", f"{name}.key", "-v2", "aes256", "-passout", f"pass:{password}"),
            *("-out", f"{name}.encrypted"),
        )

    def _openssl(self, *arguments: str) -> None:
        command = [program("openssl", "openssl") or "openssl", *arguments]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)
