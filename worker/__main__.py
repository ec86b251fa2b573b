"""Entry point of ``ldp-worker`` and ``python -m worker``."""

import sys


def main() -> None:
    """Runs the command line; names the missing extra if an import fails."""
    try:
        from worker import cli
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"ldp-worker: not installed: {error.name}; install the extra: pip install 'ldp-worker[worker]'\n"
        )
        sys.exit(2)
    cli.main()


if __name__ == "__main__":
    main()
