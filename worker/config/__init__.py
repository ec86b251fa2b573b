"""Configuration: one TOML file, overridden by environment variables, checked in full before anything starts.

`schema` says what may be written; `environment` lays variables over it; `faults`, `redaction` and `certificates` say
what is wrong, and no secret; `streams` and `loading` build what the worker reads. None of it knows a client library.
"""

from worker.config.environment import FILE_VARIABLE, PREFIX
from worker.config.faults import ConfigError
from worker.config.loading import Config, load, parse
from worker.config.schema import Redis
from worker.config.streams import Served

__all__ = ["FILE_VARIABLE", "PREFIX", "Config", "ConfigError", "Redis", "Served", "load", "parse"]
