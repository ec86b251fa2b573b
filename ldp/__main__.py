"""Entry point of ``ldp`` and ``python -m ldp``."""

import sys


def main() -> None:
    """Runs the command line, or reports that its packages are missing."""
    try:
        from ldp import cli
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"ldp: not installed: {error.name}; pip install ldp-worker installs all packages of the commands\n"
        )
        sys.exit(2)
    cli.main()


if __name__ == "__main__":
    main()
