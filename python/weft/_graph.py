"""Symbolic tensors, the graph that a model function builds, and how ops call the library."""
import ctypes as C
import functools
import inspect
import operator
import threading
from typing import Any, Callable, Tuple, TypeVar, Union

from ._library import P, S, Shape, function, text


class CTensor(C.Structure):
    _fields_ = [("graph", P), ("id", C.c_int32)]


class _Conv(C.Structure):
    _fields_ = [(name, C.c_int64) for name in ("stride", "pad", "groups", "dilation")]


_building = threading.local()


class Refused(Exception):
    """An op that the library refuses ends the model function. The library has the sentence."""


class Graph:
    """The graph that a model function is building in this thread, from `with` to its end."""

    def __init__(self, at):
        self.at, self.has_loss = at, False

    def __enter__(self):
        self._outer, _building.graph = current(), self
        return self

    def __exit__(self, *error):
        _building.graph = self._outer

    def tensor(self, c):
        """The tensor that an op has returned."""
        if c.id < 0:
            raise Refused
        return Tensor(self, c)

    def input(self, name, dtype, sample):
        return self.tensor(_input(self.at, text(name), dtype, Shape.of(sample)))

    def fail(self, sentence):
        _fail(self.at, text(sentence.replace("\0", " ")))


def current(is_needed=False):
    graph = getattr(_building, "graph", None)
    if is_needed and not graph:
        raise RuntimeError("this can only be called inside a model function, which weft.Trainer calls")
    return graph


class Tensor:
    """A symbolic tensor in a model function. Between tensors there are +, -, * and @; with numbers * and
    / scale."""
    __slots__ = ("_graph", "_c")

    def __init__(self, graph: Graph, c: CTensor):
        self._graph, self._c = graph, c

    @property
    def shape(self) -> Tuple[int, ...]:
        """Its dims, the microbatch first."""
        return _tensor_shape(of_tensor(self, "shape")).dims()

    def __repr__(self):
        return f"<weft.Tensor: {list(self.shape)}>" if self._graph is current() else "<weft.Tensor>"

    def __add__(self, other: "Tensor") -> "Tensor":
        return _python["add"](self, other)

    def __sub__(self, other: "Tensor") -> "Tensor":
        return _python["add"](self, -other)

    def __neg__(self) -> "Tensor":
        return _python["scale"](self, -1)

    def __mul__(self, other: Union["Tensor", float]) -> "Tensor":
        return _python["mul"](self, other) if isinstance(other, Tensor) else _python["scale"](self, other)

    __rmul__ = __mul__

    def __truediv__(self, number: float) -> "Tensor":
        return _python["scale"](self, 1 / number)

    def __matmul__(self, other: "Tensor") -> "Tensor":
        return _python["matmul"](self, other)


def of_tensor(value, what):
    if not isinstance(value, Tensor):
        raise TypeError(f"{what}: a {type(value).__name__} is not a weft.Tensor")
    if value._graph is not current():
        raise RuntimeError(f"{what}: this tensor belongs to a call of a model function that has ended")
    return value._c


def integer(kind, value, what):
    if kind(operator.index(value)).value != value:  # ctypes would cut it
        raise OverflowError(f"{what}: {value} does not fit")
    return operator.index(value)


# Kinds of arguments: their C type, and how one is made of a value and a name for errors.
_KINDS = {
    "t": (CTensor, of_tensor),
    "o": (CTensor, lambda value, what: CTensor(None, -1) if value is None else of_tensor(value, what)),
    "s": (S, lambda value, what: text(value)),
    "i": (C.c_int64, functools.partial(integer, C.c_int64)),
    "d": (C.c_int, functools.partial(integer, C.c_int)),
    "f": (C.c_float, lambda value, what: float(value)),
    "g": (C.c_double, lambda value, what: float(value)),
    "h": (Shape, lambda value, what: Shape.of(value)),
    "c": (_Conv, lambda value, what: value),
}
_input = function("wf_input", P, S, C.c_int, Shape, result=CTensor)
_fail = function("wf_graph_fail", P, S, result=None)
_tensor_shape = function("wf_tensor_shape", CTensor, result=Shape)

OPS = {}  # name -> kinds of its arguments and whether it returns a tensor; a test compares them with the headers
_F = TypeVar("_F", bound=Callable[..., Any])
_python = {}  # name -> the Python function


def op(kinds: str, gives: bool = True) -> Callable[[_F], _F]:
    """Makes a Python function of the C function of the same name. `kinds` has one letter of _KINDS for
    each argument; "c", the last, takes stride, pad, groups and dilation."""
    def declare(python):
        name, signature = python.__name__, inspect.signature(python)
        call = function("wf_" + name, *(_KINDS[kind][0] for kind in kinds), result=CTensor if gives else None)

        @functools.wraps(python)
        def called(*arguments, **named):
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            values = [_KINDS[kind][1](value, f"{name}: {key}") for kind, (key, value) in
                      zip(kinds.replace("c", "iiii"), bound.arguments.items())]
            if kinds[-1] == "c":
                values[-4:] = [_Conv(*values[-4:])]
            given = call(*values)
            return current().tensor(given) if gives else None

        OPS[name] = kinds, gives
        _python[name] = called
        return called
    return declare
