"""Values that keys of the configuration allow."""

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, StrictFloat, StrictInt

from ldp.consistency import METHODS
from ldp.segments import is_segment
from worker.config.redaction import is_broker
from worker.counting.windows import ALL, milliseconds, parse


def split(value: object) -> object:
    """Splits the text of an environment variable at its commas."""
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else value


def must(holds: Callable[[Any], object], allowed: str) -> AfterValidator:
    """Returns a validator that rejects values for which `holds` is false."""

    def validate(value: Any) -> Any:
        if not holds(value):
            raise ValueError(allowed)
        return value

    return AfterValidator(validate)


def like(pattern: str, allowed: str) -> AfterValidator:
    """Returns a validator that rejects texts other than matches of a pattern."""
    return must(re.compile(pattern).fullmatch, allowed)


def within(least: float, most: float, unit: str = "") -> AfterValidator:
    """Returns a validator that rejects numbers outside [least, most]."""
    return must(lambda number: least <= number <= most, f"allowed are {least} to {most}{unit}")


def exact(what: str) -> BeforeValidator:
    """Returns a validator that rejects floats, because they are not exact."""

    def validate(value: object) -> object:
        if isinstance(value, float) and math.isfinite(value):
            raise ValueError(f'write it in quotes, "{value}": {what} is exact, and a float is rounded')
        return value

    return BeforeValidator(validate)


Probability = Annotated[str | StrictInt, exact("a probability")]

TopicName = Annotated[
    str,
    like(
        r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}",
        "allowed are 1 to 249 of A-Z a-z 0-9 . _ - except . and ..",
    ),
]
NAME = r"[A-Za-z0-9._-]{1,200}"
"""Pattern of the names of groups and streams."""
Name = Annotated[str, like(NAME, "allowed are 1 to 200 of A-Z a-z 0-9 . _ -")]
Segment = Annotated[
    str,
    must(is_segment, "allowed are levels of 1 to 32 of A-Z a-z 0-9 . _ -, joined by :, at most 64 in total"),
]
Broker = Annotated[
    str,
    must(is_broker, "allowed is host:port, such as localhost:9092, without a scheme, user or password"),
]
Seconds = Annotated[StrictFloat, within(0.05, 3600, " seconds")]
Share = Annotated[StrictFloat, must(lambda share: 0 <= share < 1, "it must be at least 0 and less than 1")]
Port = Annotated[StrictInt, within(0, 65535)]
LABEL_TAGS = ("<labels>", "<file of labels>")
"""Parts of the location of a fault in `streams.labels`: a list of labels, or the path of a file."""
FOREVER = "forever"
"""Value of `streams.retain` that deletes nothing."""


def window(name: str) -> str:
    """Returns a window name; raises ValueError with the form of valid names."""
    try:
        if name != ALL:
            parse(name)
    except ValueError as error:
        raise ValueError(str(error).rpartition(" given; ")[2]) from None
    return name


def lasting(least: str, other: str = "") -> AfterValidator:
    """Returns a validator that rejects shorter durations, except for `other`."""

    def holds(text: str) -> bool:
        try:
            return text == other or milliseconds(text) >= milliseconds(least)
        except ValueError:
            return False

    more = f", and {other}" if other else ""
    return must(holds, f"allowed are {least} to 366d, a whole number with s, m, h or d{more}")


Number = Annotated[StrictInt, within(1, (1 << 31) - 1)]
HostName = Annotated[
    str,
    like(
        r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", "allowed are host names without a port, such as ldp.example.org"
    ),
    AfterValidator(str.lower),
]


def are_methods(names: list[str]) -> bool:
    """Returns whether names are one or more methods without duplicates."""
    return bool(names) and len({*names}) == len(names) and METHODS.keys() >= {*names}


Methods = Annotated[
    list[str],
    must(
        lambda names: are_methods(names) and "base" in names,
        f"allowed is a list with base and any others, each once, of {', '.join(METHODS)}",
    ),
    AfterValidator(lambda names: [name for name in METHODS if name in names]),
]
