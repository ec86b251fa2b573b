"""The fork server assigns exit codes to the right workers."""

import json
import socket

from tests.support.fork_server import ForkServer


def test_a_reused_process_id_has_a_separate_exit_code(tmp_path):
    fork_server = ForkServer()
    fork_server._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with fork_server._socket, theirs:
        log = tmp_path / "log"
        theirs.sendall(json.dumps({"forked": 7}).encode())
        before = fork_server.fork("worker", [], {}, log)
        theirs.sendall(json.dumps({"ended": 7, "code": -9}).encode())
        theirs.sendall(json.dumps({"forked": 7}).encode())
        after = fork_server.fork("worker", [], {}, log)
        assert (before.returncode, after.returncode) == (-9, None)
        theirs.sendall(json.dumps({"ended": 7, "code": 0}).encode())
        assert (after.wait(10), before.returncode) == (0, -9)
