"""A worker as a process, without its services: it prints its address, answers, and ends."""

import socket
import threading

import pytest

from deploy.local.workers import Worker


def test_a_worker_without_a_logged_port_is_not_ready(tmp_path):
    worker = Worker("worker 1", None, tmp_path / "log")
    worker.log.write_text('text\n{"event": "worker.started", "port": 1')  # a line that is only half written
    assert worker.port() == 0
    assert not worker.ready()
    with pytest.raises(ConnectionError, match="worker 1 has not logged its port yet"):
        worker.get("/healthz")
    worker.log.write_text('{"event": "worker.started", "port": 1}\n')
    assert worker.port() == 1


def test_a_truncated_answer_is_ignored(tmp_path):
    """As if the process were killed during a request, which callers handle: it raises an `OSError`."""

    def cut():
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(
                b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nhalf"
            )

    worker = Worker("worker 1", None, tmp_path / "log")
    with socket.create_server(("127.0.0.1", 0)) as server:
        worker.log.write_text(f'{{"event": "worker.started", "port": {server.getsockname()[1]}}}\n')
        answering = threading.Thread(target=lambda: (cut(), cut()))
        answering.start()
        assert not worker.ready()
        with pytest.raises(ConnectionError, match="worker 1 ended its answer early"):
            worker.get("/metrics")
        answering.join()
