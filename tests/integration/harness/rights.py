"""Rights: the ``kafka-acls`` lines of worker/README.md as what an administrator's client is given."""

import re
import shlex
from pathlib import Path

from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

README = Path(__file__).parents[3] / "worker" / "README.md"
LIMITED, LIMITED_PASSWORD = tuple(f"limited{n}" for n in range(12)), "limited"
"""Users of the secure services who may do nothing that no ACL allows."""
_KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.CLUSTER,
}


def lines() -> list[str]:
    """The lines of the README, each one right; without what all begin with."""
    return re.findall(
        r"^kafka-acls\.sh \$TO (--operation .+)$", README.read_text(encoding="utf-8"), re.MULTILINE
    )


def acl(line: str, user: str, names: dict[str, str]) -> ACL:
    """What a line allows a user, the example's names being others."""
    operation, name, kind, resource = shlex.split(line)
    assert operation == "--operation"
    right = ACLOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]
    pattern = ResourcePattern(_KINDS[kind], names[resource])
    return ACL(f"User:{user}", "*", right, ACLPermissionType.ALLOW, pattern)
