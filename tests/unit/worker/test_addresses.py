"""The address of Redis is parsed in one way, and the client library gets the same parts."""

import pytest
import redis
from redis.exceptions import ClusterDownError, MovedError, RedisClusterException
from redis.sentinel import MasterNotFoundError

from worker.config import Redis
from worker.config.address import Address, read
from worker.redis.advice import START, remedy
from worker.redis.connecting import connect


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", Address("server", False, (("localhost", 6379),))),
        ("rediss://me:p%2Fw@[::1]:7/3", Address("server", True, (("::1", 7),), "me", "p/w", number=3)),
        ("redis://:pw@h/", Address("server", False, (("h", 6379),), None, "pw")),
        ("redis://a,b:c,d@h", Address("server", False, (("h", 6379),), "a,b", "c,d")),
        ("unix://me:pw@/run/redis.sock", Address("socket", False, (), "me", "pw", path="/run/redis.sock")),
        (
            "redis+sentinel://one,two:5/m/2",
            Address("sentinel", False, (("one", 26379), ("two", 5)), master="m", number=2),
        ),
        (
            "rediss+sentinel://me@one/a.b-c",
            Address("sentinel", True, (("one", 26379),), "me", master="a.b-c"),
        ),
        ("redis+cluster://one,two:7001", Address("cluster", False, (("one", 6379), ("two", 7001)))),
        ("rediss+cluster://one/0", Address("cluster", True, (("one", 6379),))),
        ("redis://one,two", None),
        ("redis+sentinel://one", None),
        ("redis+sentinel://one/", None),
        ("redis+sentinel://one/m/x", None),
        ("redis+sentinel://one,/m", None),
        ("redis+cluster://one/1", None),
        ("redis+cluster://one,two:70000", None),
        ("redis+other://one", None),
    ],
)
def test_addresses_are_parsed_from_urls(url, address):
    assert read(url) == address


def test_client_settings_match_the_url():
    with connect(Redis(url="rediss://me@cache:7/3", password="pw")) as client:
        told = client.connection_pool.connection_kwargs
    expected = {
        "host": "cache",
        "port": 7,
        "db": 3,
        "username": "me",
        "password": "pw",
        "socket_timeout": 5.0,
    }
    assert {key: told[key] for key in expected} == expected
    assert client.connection_pool.connection_class is redis.SSLConnection
    with connect(
        Redis(url="redis+sentinel://one,two/m/2", password="pw", sentinel_password="other")
    ) as client:
        told, sentinels = (
            client.connection_pool.connection_kwargs,
            client.connection_pool.sentinel_manager.sentinels,
        )
    assert (told["db"], told["password"], client.connection_pool.service_name) == (2, "pw", "m")
    asked = [each.connection_pool.connection_kwargs for each in sentinels]
    assert [(each["host"], each["port"], each["password"]) for each in asked] == [
        ("one", 26379, "other"),
        ("two", 26379, "other"),
    ]


@pytest.mark.parametrize(
    ("url", "error", "hint"),
    [
        ("redis://h", redis.ConnectionError("Error 111 connecting to h:6379. Connection refused."), START),
        (
            "redis://h",
            MovedError("5 h:7"),
            "this is a node of a cluster: write redis+cluster:// in redis.url",
        ),
        ("redis://h", ClusterDownError("Hash slot not served"), "this is a node of a cluster: write"),
        (
            "redis+cluster://h",
            ClusterDownError("The cluster is down"),
            "give every slot of the cluster a node",
        ),
        ("redis+cluster://h", RedisClusterException("All slots are not covered"), "give every slot"),
        ("redis+sentinel://h/m", MasterNotFoundError("no Sentinel names a master 'm': h:1 is down"), START),
        (
            "redis+sentinel://h/m",
            MasterNotFoundError("no Sentinel names a master 'm': invalid username-password pair"),
            "correct redis.sentinel_password",
        ),
        ("rediss://h", redis.TimeoutError("Timeout connecting to server"), "no answer over TLS"),
        ("redis://h", redis.TimeoutError("Timeout connecting to server"), START),
    ],
)
def test_connection_errors_have_a_remedy(url, error, hint):
    assert remedy(error, read(url)).startswith(hint)
