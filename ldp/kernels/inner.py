"""Decorators of kernels, pointers to states, and prefetching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

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


def _pointer(_typing: Any, _address: Any) -> Any:
    """Converts an address to a pointer, because a list of arrays is slower."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    counters: Any = types.CPointer(types.int64)  # type: ignore[no-untyped-call]
    return counters(types.intp), build


pointer_to: Any = intrinsic(_pointer)


def _prefetch(_typing: Any, _address: Any) -> Any:
    """Starts to load the cache line of a counter, and does not wait."""

    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        of = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        options = [ir.Constant(number, option) for option in (1, 3, 1)]  # to write, into all caches, data
        function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), of)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *options])
        return context.get_dummy_value()

    return types.none(types.intp), build


prefetch: Any = intrinsic(_prefetch)
