"""Command `gateway`: accepts uploads over HTTP."""

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from worker.cli.command import command, complain

if TYPE_CHECKING:
    from worker.config import Config


@command("gateway")
def gateway(config: "Config") -> int:
    """Accept uploads over HTTP and write them to the intake topics.

    Serves every stream that has an intake, until SIGTERM or SIGINT. Any number of processes can serve behind a load
    balancer. Needs the extra: pip install 'ldp-worker[gateway]'
    """
    if find_spec("granian") is None:
        complain("not installed: granian; install the extra: pip install 'ldp-worker[gateway]'")
        sys.exit(2)
    from worker.observe import logs
    from worker.service import gateway as service

    logs.configure(config.log_level)
    code = service.run(config)
    # a thread of granian can outlive the server, and abort the process while the interpreter ends
    os._exit(code)
