"""``python -m ldp.cli`` is ``ldp``."""

from ldp.cli import main

main()
