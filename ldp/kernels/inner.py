"""Decorators for lean kernels and for functions that only kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

_F = TypeVar("_F", bound=Callable[..., Any])
# without an entry for Python, a function compiles faster; numba's types do not have these options
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
inner: Callable[[_F], _F] = njit(**_OPTIONS)
# without reference counting, a kernel compiles and runs faster; an array for its work is an argument
LEAN: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False, "no_cfunc_wrapper": True}
lean: Callable[[_F], _F] = njit(**LEAN)
