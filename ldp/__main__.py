"""``ldp``, and ``python -m ldp``: the command line, or a word where only the client can run."""

import sys


def main() -> None:
    """The entry point of ``ldp``."""
    try:
        from ldp import cli
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"ldp: not installed: {error.name}; pip install ldp-worker brings what the commands need\n"
        )
        sys.exit(2)
    cli.main()


if __name__ == "__main__":
    main()
