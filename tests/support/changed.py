"""Whether `ldp` or `tests/paper` changed since a commit that LDP_TEST_BASE names.

CI names the commit that a change starts from. The tests marked `statistical` take minutes and test only `ldp` and
`tests/paper`, which import nothing from `worker` (a contract in `pyproject.toml`). If none of their dependencies
changed, their results equal those of the base commit, and `make test` leaves them out.
"""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTED = (
    "ldp",
    "tests/paper",
    "deploy/demo/emoji.csv",
    "tests/unit/ldp",
    "tests/unit/paper",
    "tests/vectors",
    ":(glob)tests/support/*.py",
    "pyproject.toml",
    "requirements-dev.lock",
)
"""Dependencies of the tests marked `statistical`, as git's path patterns."""


def unchanged(base: str = os.environ.get("LDP_TEST_BASE", ""), root: Path = ROOT) -> bool:
    """Returns whether `TESTED` is as in the base commit; False in any doubt: no base, an unknown one, or no git."""
    if not base:
        return False
    try:
        same, others = (
            subprocess.run(["git", *command, "--", *TESTED], cwd=root, capture_output=True, check=False)
            for command in (
                ("diff", "--quiet", "--end-of-options", f"{base}^{{commit}}"),
                ("ls-files", "--others", "--exclude-standard"),
            )
        )
    except OSError:
        return False
    return (same.returncode, others.returncode, others.stdout) == (0, 0, b"")
