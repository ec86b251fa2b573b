"""The `kafka-acls` lines of worker/README.md as ACLs."""

import re
import shlex
from pathlib import Path

from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

README = Path(__file__).parents[3] / "worker" / "README.md"
LIMITED, LIMITED_PASSWORD = tuple(f"limited{n}" for n in range(12)), "limited"
"""Users of the secure services without rights of their own."""
_KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.CLUSTER,
}


def lines() -> list[str]:
    """Returns the rights of the README, without the common prefix."""
    return re.findall(
        r"^kafka-acls\.sh \$TO (--operation .+)$", README.read_text(encoding="utf-8"), re.MULTILINE
    )


def acl(line: str, user: str, names: dict[str, str]) -> ACL:
    """Returns the ACL of a line for a user and names."""
    operation, name, kind, resource = shlex.split(line)
    assert operation == "--operation"
    right = ACLOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]
    pattern = ResourcePattern(_KINDS[kind], names[resource])
    return ACL(f"User:{user}", "*", right, ACLPermissionType.ALLOW, pattern)
