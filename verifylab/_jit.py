"""Compiled functions whose cache can fail without the function failing.

Numba stores machine code beside the source, else in the user's cache folder. Where neither can be
written (a read-only install without a home) it refuses to compile at all, and a cache file that
was cut short raises whatever unpickling it raises. Here the code is then compiled anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

__all__ = ["jit"]


class _Cache(FunctionCache):
    """Numba's cache of one function, whose damaged or unwritable files count as empty."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # unpickling damaged bytes raises anything
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            try:
                super().save_overload(sig, data)
            except OSError:
                raise
            except Exception:  # the index is damaged: start a new one
                self.flush()
                super().save_overload(sig, data)
        except Exception:
            self.disable()  # the code is compiled all the same


def jit(
    function: Callable[..., Any] | None = None, *, signature: Any = None, **options: Any
) -> Any:
    """Compile as ``numba.njit`` does, cached where that works.

    Parameters
    ----------
    function : callable
        Without it, a decorator is returned.
    signature : numba signature, optional
        Compile (or load) for it at once; calls then never compile.
    **options
        Of ``numba.njit``.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if not isinstance(dispatcher, Dispatcher):  # NUMBA_DISABLE_JIT
            return dispatcher
        try:
            dispatcher._cache = _Cache(function)  # type: ignore[attr-defined]
        except (RuntimeError, OSError):  # no folder that numba may write its cache into
            pass
        if signature is not None:
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return compiled if function is None else compiled(function)
