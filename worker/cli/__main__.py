"""``python -m worker.cli`` is ``ldp-worker``."""

from worker.cli import main

main()
