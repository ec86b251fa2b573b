"""Command `gateway`: accepts uploads over HTTP."""

import os
from typing import TYPE_CHECKING

from worker.cli.command import command, require_extra

if TYPE_CHECKING:
    from worker.config import Config


@command("gateway")
def gateway(config: "Config") -> int:
    """Accept uploads over HTTP and write them to the intake topics.

    Serves every stream that has an intake, until SIGTERM or SIGINT. Any number of processes can serve behind a load
    balancer. Needs the extra: pip install 'ldp-worker[gateway]'
    """
    require_extra("gateway")
    from worker.observe import logs
    from worker.service import gateway as service

    logs.configure(config.log_level)
    code = service.run(config)
    # a thread of granian can outlive the server, and abort the process while the interpreter ends
    os._exit(code)
