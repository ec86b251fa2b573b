"""Configuration from TOML and the environment, validated at the start.

The package imports no client library.
"""

from worker.config.environment import FILE_VARIABLE, PREFIX
from worker.config.faults import ConfigError
from worker.config.loading import Config, load, parse
from worker.config.schema import Redis
from worker.config.streams import Served

__all__ = ["FILE_VARIABLE", "PREFIX", "Config", "ConfigError", "Redis", "Served", "load", "parse"]
