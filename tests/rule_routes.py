"""The ways that the rule can be computed, so that every test can go all of them.

`cupy` stands in for a GPU: a module of that name, backed by NumPy, that has what the rule may use
of CuPy 13.3 and later and refuses what CuPy refuses. What it cannot show is CuPy's own kernels.
"""

import sys
from types import ModuleType
from unittest import mock

import numpy as np

from verifylab import key, ordering

ROUTES = ["general", "compiled", "cupy"]


def by(route, function, slots, depths, *rest):
    """Call `function` by one route; whatever arrays come back are NumPy."""
    if route == "cupy":
        module = stub_cupy()
        with mock.patch.dict(sys.modules, {"cupy": module}):
            result = function(module.asarray(slots), module.asarray(depths), *rest)
        return _to_numpy(result, module.ndarray)
    rule = None
    if route == "compiled":
        from verifylab import _fast_rule as rule
    with (
        mock.patch.object(ordering, "compiled_rule", lambda *_: rule),
        mock.patch.object(key, "compiled_rule", lambda *_: rule),
    ):
        return function(slots, depths, *rest)


def _to_numpy(result, kind):
    if isinstance(result, tuple):
        return tuple(_to_numpy(part, kind) for part in result)
    assert type(result) is kind, "CuPy arrays in, CuPy arrays out"
    return result.get()


def stub_cupy():
    module = ModuleType("cupy")

    class ndarray:
        __array_ufunc__ = None

        def __init__(self, array):
            self._array = np.asarray(array)

        def __array__(self, *args, **kwargs):
            raise TypeError("Implicit conversion to a NumPy array is not allowed")

        def get(self):
            return self._array.copy()

        shape = property(lambda self: self._array.shape)
        dtype = property(lambda self: self._array.dtype)
        ndim = property(lambda self: self._array.ndim)
        size = property(lambda self: self._array.size)

        def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
            return ndarray(self._array.astype(dtype, copy=copy))

        def min(self):
            return ndarray(self._array.min())

        def max(self):
            return ndarray(self._array.max())

        def any(self):
            return ndarray(self._array.any())

        def nonzero(self):
            return tuple(ndarray(part) for part in self._array.nonzero())

        def __getitem__(self, index):
            return ndarray(self._array[index])

        def __setitem__(self, index, value):
            self._array[index] = _inner(value)

        def __int__(self):
            return int(self._array)

        def __bool__(self):
            return bool(self._array)

        def __neg__(self):
            return ndarray(-self._array)

        def __lt__(self, other):
            return ndarray(self._array < _inner(other))

        def __gt__(self, other):
            return ndarray(self._array > _inner(other))

        def __eq__(self, other):
            return ndarray(self._array == _inner(other))

        __hash__ = None

    ndarray.__module__ = "cupy"

    def _inner(value):
        if isinstance(value, np.ndarray):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        return value._array if isinstance(value, ndarray) else value

    def asarray(a):
        return a if isinstance(a, ndarray) else ndarray(a)

    def empty(shape, dtype=float):
        return ndarray(np.empty(shape, dtype))

    def _sortable(a, kind):
        # CuPy has no other kind, and nothing says what its sort makes of no elements.
        assert isinstance(a, ndarray) and kind in (None, "stable") and a.size
        return a._array

    def argsort(a, axis=-1, kind=None):
        return ndarray(np.argsort(_sortable(a, kind), axis=axis, kind="stable"))

    def sort(a, axis=-1, kind=None):
        return ndarray(np.sort(_sortable(a, kind), axis=axis, kind="stable"))

    def take_along_axis(a, indices, axis):
        return ndarray(np.take_along_axis(a._array, indices._array, axis))

    def broadcast_to(array, shape):
        return ndarray(np.broadcast_to(array._array, shape))

    for name in (asarray, empty, argsort, sort, take_along_axis, broadcast_to):
        setattr(module, name.__name__, name)
    module.ndarray = ndarray
    return module
