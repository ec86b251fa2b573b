"""Forked workers of the tests: whose end is whose."""

import json
import socket

from tests.nursery import Nursery


def test_who_has_the_process_id_of_one_before_has_an_end_of_its_own(tmp_path):
    nursery = Nursery()
    nursery._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with nursery._socket, theirs:
        log = tmp_path / "log"
        theirs.sendall(json.dumps({"born": 7}).encode())
        before = nursery.bear("worker", [], {}, log)
        theirs.sendall(json.dumps({"ended": 7, "code": -9}).encode())
        theirs.sendall(json.dumps({"born": 7}).encode())
        after = nursery.bear("worker", [], {}, log)
        assert (before.returncode, after.returncode) == (-9, None)
        theirs.sendall(json.dumps({"ended": 7, "code": 0}).encode())
        assert (after.wait(10), before.returncode) == (0, -9)
