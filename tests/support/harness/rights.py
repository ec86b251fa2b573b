"""The `kafka-acls` lines of docs/operate/secure.md as ACLs."""

import re
import shlex

from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from tests.support.docs import page

DOCUMENTED = page("operate/secure")
LIMITED, LIMITED_PASSWORD = tuple(f"limited{n}" for n in range(12)), "limited"
"""Users of the secure services without any rights."""
_KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.CLUSTER,
}


def lines() -> list[str]:
    """Returns the rights of the page, without the common prefix."""
    return re.findall(r"^kafka-acls\.sh \$TO (--operation .+)$", DOCUMENTED, re.MULTILINE)


def acl(line: str, user: str, names: dict[str, str]) -> ACL:
    """Returns the ACL of a line for a user and names."""
    operation, name, kind, resource = shlex.split(line)
    assert operation == "--operation"
    right = ACLOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]
    pattern = ResourcePattern(_KINDS[kind], names[resource])
    return ACL(f"User:{user}", "*", right, ACLPermissionType.ALLOW, pattern)
