"""Numbers as Grafana writes them: its units, as far as the dashboards have them, and its choice of decimals."""

import math
from datetime import UTC, datetime

_SCALES = {
    "short": (1000, ("", " K", " Mil", " Bil")),
    "cps": (1000, (" c/s", "K c/s", "M c/s")),
    "bytes": (1024, (" B", " KiB", " MiB", " GiB")),
}


def written(value: float, unit: str, decimals: int | None = None) -> str:
    """A number in a unit.

    Example:
        >>> [written(*one) for one in ((0.0123, "percentunit"), (15300, "short"), (0.0042, "s"), (90, "s"), (3, "cps"))]
        ['1.23%', '15.3 K', '4.2 ms', '1.5 mins', '3 c/s']
    """
    if math.isnan(value):
        return "NaN"
    if unit == "dateTimeAsIso":
        return f"{datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    if unit == "percentunit":
        return f"{_rounded(100 * value, decimals)}%"
    if unit.startswith("suffix:"):
        return f"{_rounded(value, decimals)} {unit.removeprefix('suffix:')}"
    if unit == "s":
        return _seconds(value, decimals)
    base, names = _SCALES[unit]
    power = min(int(math.log(abs(value), base)), len(names) - 1) if abs(value) >= base else 0
    return _rounded(value / base**power, decimals) + names[power]


def _seconds(value: float, decimals: int | None) -> str:
    for least, factor, name in ((60, 1 / 60, "mins"), (1, 1, "s"), (1e-3, 1e3, "ms"), (0, 1e6, "µs")):
        if abs(value) >= least or value == 0:
            return f"{_rounded(value * factor, decimals)} {'s' if value == 0 else name}"
    raise AssertionError(value)


def _rounded(value: float, decimals: int | None) -> str:
    if decimals is None:
        if value == round(value):
            return f"{value:.0f}"
        figures = max(0, 2 - math.floor(math.log10(abs(value)))) if abs(value) > 1e-12 else 0
        text = f"{value:.{min(figures, 6)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text
