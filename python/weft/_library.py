"""libweft.so for ctypes: how it is found, and its functions, structures, errors and handles."""
import contextlib
import ctypes as C
import ctypes.util
import os

P, S = C.c_void_p, C.c_char_p


class Error(Exception):
    """A call that the library refused. str() is its sentence, `name` the status, such as "SHAPE"."""
    name: str

    def __init__(self, name: str, sentence: str):
        super().__init__(sentence)
        self.name = name


# ---- the library ----

def _open_library():
    """The first that is there: the library that WEFT_LIBRARY names, one in this folder (a wheel's),
    build/ of the source tree, an installed one."""
    folder = os.path.dirname(os.path.abspath(__file__))
    near = os.path.join(folder, "libweft.so"), os.path.join(folder, "..", "..", "build", "libweft.so")
    path = (os.environ.get("WEFT_LIBRARY") or next(filter(os.path.exists, near), None) or
            ctypes.util.find_library("weft") or "libweft.so")
    try:
        return C.CDLL(path)
    except OSError as error:
        raise ImportError(f"weft's library cannot be loaded: {error}. Build it (make build), install it "
                          "(make install), or set WEFT_LIBRARY to its path") from None


lib = _open_library()

def function(name, *arguments, result=C.c_int):
    """The library's function of that name, with the types of its arguments and its result."""
    of = getattr(lib, name)
    of.argtypes, of.restype = arguments, result
    return of


def text(value):
    """A string for C. A NUL byte would end it there, so it is refused."""
    value = os.fsencode(value)
    if b"\0" in value:
        raise ValueError(f"{value!r} has a NUL byte")
    return value


__version__ = function("wf_version", result=S)().decode()


# ---- structures ----

class Config(C.Structure):
    """A structure that begins with its own size. ctypes would cut numbers that are too large, and
    would take a number for an address, so both are refused."""

    def __init__(self, **values):
        kinds = dict(self._fields_[1:])
        for name, value in values.items():
            if name not in kinds:
                raise TypeError(f"there is no {name!r}; there are {', '.join(kinds)}")
            if kinds[name] is S and value is not None:
                values[name] = text(value)
            elif kinds[name] not in (S, P) and kinds[name](value).value != value:
                raise OverflowError(f"{name}: {value} does not fit")
        super().__init__(**values)
        self.struct_size = C.sizeof(self)


class Shape(C.Structure):
    """wf_shape"""
    _fields_ = [("n_dims", C.c_int), ("dim", C.c_int64 * 6)]

    @classmethod
    def of(cls, dims):
        dims = tuple(dims)
        if len(dims) > 6:
            raise ValueError(f"{dims} has {len(dims)} dims; weft has at most 6")
        return cls(len(dims), dims)

    def dims(self):
        return tuple(self.dim[:self.n_dims])


# ---- errors and handles ----

_status_name = function("wf_status_name", C.c_int, result=S)
_context_create = function("wf_context_create", P, C.POINTER(P))
_context_error = function("wf_context_error", P, result=S)


class _Context:
    """Each process has one. It is never destroyed, because arrays of other libraries may outlive
    everything else."""

    def __init__(self):
        self.at = P()
        if _context_create(None, C.byref(self.at)):
            raise MemoryError("weft's context")

    def check(self, status):
        if status:
            raise Error(_status_name(status).decode(), _context_error(self.at).decode())


context = _Context()


class Owner:
    """The owner of one of the library's handles, until close() or the end of this object."""
    _own, _destroy, _process = None, None, None
    _lock = contextlib.nullcontext()

    @property
    def _at(self):
        if not self._own:
            raise ValueError(f"this {type(self).__name__} is closed")
        if self._process != os.getpid():
            raise RuntimeError(f"this {type(self).__name__} is of process {self._process}: its threads are not here")
        return self._own

    def _make(self, create, *arguments):
        at = P()
        context.check(create(context.at, *arguments, C.byref(at)))
        self._own, self._process = at, os.getpid()

    def close(self) -> None:
        """Destroys the handle, after the call that another thread is in."""
        if self._process != os.getpid():  # a fork: its copy of the lock may be held for ever
            self._own = None
            return
        with self._lock:
            at, self._own = self._own, None
            if at:
                type(self)._destroy(at)

    __del__ = close

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
