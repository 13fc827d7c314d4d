"""Arrays of other libraries, weft's own arrays, and DLPack between them."""
import array as _array
import collections
import ctypes as C
import sys
from typing import Any, Optional, Tuple

from ._library import Owner, P, S, Shape, context, function, text

ArrayLike = Any
"""A NumPy array, a PyTorch tensor on the CPU, an array.array, a weft.Array: whatever has Python's
buffer protocol or DLPack."""

# The dtypes of wf_dtype, in its order, and the format of each in Python's struct and array modules.
DTYPES = ("float32", "bfloat16", "float64", "int32", "int64", "uint8")
_FORMATS = {"float16": b"e", "float32": b"f", "float64": b"d", "bfloat16": b"H", "bool": b"?",
            "int8": b"b", "int16": b"h", "int32": b"i", "int64": b"q",
            "uint8": b"B", "uint16": b"H", "uint32": b"I", "uint64": b"Q"}
_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _dtype_of(view):
    """The dtype of a memoryview, such as "float32"."""
    form = view.format.lstrip("@=<")
    if form[0] in ">!" and view.itemsize > 1:
        return f"big-endian, of the format {form!r}"
    for kind, letters in dict(float="efdg", int="bhilqn", uint="BHILQN").items():
        if form.lstrip(">!") in tuple(letters):
            return f"{kind}{8 * view.itemsize}"
    return {"?": "bool", "Zf": "complex64", "Zd": "complex128"}.get(form, f"of the format {form!r}")


# ---- DLPack: https://dmlc.github.io/dlpack ----

class _DLTensor(C.Structure):
    _fields_ = [("data", P), ("device_type", C.c_int32), ("device_id", C.c_int32),
                ("ndim", C.c_int32), ("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16),
                ("shape", C.POINTER(C.c_int64)), ("strides", C.POINTER(C.c_int64)),
                ("byte_offset", C.c_uint64)]


class _DLManaged(C.Structure):
    """DLManagedTensorVersioned. A DLManagedTensor of before version 1 begins with its DLTensor."""
    _fields_ = [("major", C.c_uint32), ("minor", C.c_uint32), ("manager", P), ("deleter", P),
                ("flags", C.c_uint64), ("tensor", _DLTensor)]


_CPU, _PINNED, _READ_ONLY = 1, 3, 1
_CAPSULE, _USED, _OLD_CAPSULE = b"dltensor_versioned", b"used_dltensor_versioned", b"dltensor"
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}
_BOOL = 6

_new_capsule = C.pythonapi.PyCapsule_New
_new_capsule.argtypes, _new_capsule.restype = [P, S, P], C.py_object
_is_capsule = C.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [C.py_object, S]
_capsule_pointer = C.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [C.py_object, S], P
_rename_capsule = C.pythonapi.PyCapsule_SetName
_rename_capsule.argtypes = [C.py_object, S]


def _capsule_of(array):
    """The array's DLPack capsule. It is read and not consumed, so it frees the tensor when it goes."""
    try:
        return array.__dlpack__(max_version=(1, 0))
    except TypeError:  # a library of before DLPack 1
        return array.__dlpack__()


def _tensor_in(capsule):
    """The DLTensor in a capsule, and whether it is read-only."""
    if _is_capsule(capsule, _OLD_CAPSULE):
        return _DLTensor.from_address(_capsule_pointer(capsule, _OLD_CAPSULE)), False
    managed = _DLManaged.from_address(_capsule_pointer(capsule, _CAPSULE))
    if managed.major != 1:
        raise BufferError(f"this tensor is of DLPack {managed.major}; weft reads version 1")
    return managed.tensor, bool(managed.flags & _READ_ONLY)


# ---- the host's memory of an array ----

class _Buffer(C.Structure):
    _fields_ = [("buf", P), ("obj", P), ("len", C.c_ssize_t), ("itemsize", C.c_ssize_t),
                ("readonly", C.c_int), ("ndim", C.c_int), ("format", S),
                ("shape", C.POINTER(C.c_ssize_t)), ("strides", C.POINTER(C.c_ssize_t)),
                ("suboffsets", P), ("internal", P)]


_get_buffer = C.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [C.py_object, C.POINTER(_Buffer), C.c_int]
_release_buffer = C.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [C.POINTER(_Buffer)], None
_view_of_buffer = C.pythonapi.PyMemoryView_FromBuffer
_view_of_buffer.argtypes, _view_of_buffer.restype = [C.POINTER(_Buffer)], C.py_object


def _address(view):
    """Where a contiguous memoryview's bytes are; they stay there as long as it lives."""
    buffer = _Buffer()
    _get_buffer(view, buffer, 0)
    at = buffer.buf
    _release_buffer(buffer)
    return at


def _view_of_tensor(array, name):
    """A memoryview of a DLPack tensor, its dtype, and what keeps its memory."""
    if array.__dlpack_device__()[0] not in (_CPU, _PINNED):
        raise TypeError(f"{name}: this tensor is on another device than the CPU, which weft reads: give {name}.cpu()")
    capsule = _capsule_of(array)
    tensor, is_read_only = _tensor_in(capsule)
    dtype = "bool" if tensor.code == _BOOL else f"{_KINDS.get(tensor.code, 'opaque')}{tensor.bits}"
    if dtype not in _FORMATS or tensor.lanes != 1:
        raise _wrong_dtype(array, name, dtype, "float32")
    n_dims, size = tensor.ndim, max(tensor.bits // 8, 1)
    dims = (C.c_ssize_t * n_dims)(*tensor.shape[:n_dims])
    strides, n_elements = (C.c_ssize_t * n_dims)(), 1
    for dim in reversed(range(n_dims)):
        strides[dim] = size * (tensor.strides[dim] if tensor.strides else n_elements)
        n_elements *= dims[dim]
    if not n_elements:
        return memoryview(b""), dtype, tuple(dims), None
    view = _view_of_buffer(_Buffer(buf=tensor.data + tensor.byte_offset, len=n_elements * size, itemsize=size,
                                   readonly=is_read_only, ndim=n_dims, format=_FORMATS[dtype],
                                   shape=dims, strides=strides))
    return view, dtype, tuple(dims), (capsule, dims, strides)


def _wrong_dtype(array, name, dtype, wanted):
    how = (f": {name}.to(torch.{wanted})" if type(array).__module__.split(".")[0] == "torch" else
           f": {name}.astype(\"{wanted}\")" if hasattr(array, "astype") else "")
    return TypeError(f"{name}: elements are {dtype}, which weft does not convert to {wanted} by itself{how}")


class Memory:
    """The elements of an array as C reads them: `bytes` of them at the address `at`, row-major, with
    `dtype`, such as "float32", and `shape`. That is the array's own memory where it is contiguous,
    else a copy."""

    def __init__(self, array, name, is_written=False):
        try:
            view = memoryview(array)
            self.dtype, self.shape, self._kept = _dtype_of(view), view.shape, None
        except TypeError:
            if not hasattr(array, "__dlpack__"):
                raise TypeError(f"{name}: a {type(array).__name__} is not an array: give a NumPy array, a "
                                "PyTorch tensor, an array.array or a weft.Array") from None
            view, self.dtype, self.shape, self._kept = _view_of_tensor(array, name)
        if is_written and (view.readonly or not view.c_contiguous):
            raise BufferError(f"{name}: this array is {'read-only' if view.readonly else 'not contiguous'}, "
                              "so nothing can be written into it")
        self._view = view if view.c_contiguous else memoryview(view.tobytes())
        self._array, self.at, self.bytes = array, _address(self._view), self._view.nbytes

    def integers(self):
        """The elements of an array of integers, in order."""
        view = memoryview((C.c_char * self.bytes).from_address(self.at) if self.bytes else b"")
        return view.cast("B").cast(_FORMATS[self.dtype].decode())

    def converted(self, name, dtype):
        """This memory, or a copy of its integers as int32. Nothing else is converted, as in PyTorch."""
        if self.dtype == dtype:
            return self
        if dtype != "int32" or self.dtype not in _INTEGERS:
            raise _wrong_dtype(self._array, name, self.dtype, dtype)
        try:
            copy = Memory(_array.array("i", self.integers()), name)
        except OverflowError:
            worst = max(self.integers(), key=abs)
            raise OverflowError(f"{name}: {worst} does not fit into int32, which the model reads") from None
        copy.shape = self.shape
        return copy


def written(array, dtype="float32"):
    """The memory of an array that the library writes into."""
    memory = Memory(array, "into", is_written=True)
    if memory.dtype != dtype:
        raise TypeError(f"into: elements are {memory.dtype}, and {dtype} is written")
    return memory


# ---- inputs ----

class Input(collections.namedtuple("Input", "dtype sample n_ids", defaults=(None, None))):
    """An input that a model reads: its dtype, the shape of a sample, and for tokens the size of the
    vocabulary; None: the library alone checks it."""


class _Feed(C.Structure):
    _fields_ = [("name", S), ("data", P), ("bytes", C.c_size_t)]


def _fed(array, name, wanted):
    """The memory of one input. The library sees bytes only, so their meaning is checked here."""
    memory = Memory(array, name)
    if not wanted:
        return memory
    memory = memory.converted(name, wanted.dtype)
    sample = tuple(memory.shape[1:])
    if wanted.sample and len(sample) == len(wanted.sample) and sample != wanted.sample:
        raise ValueError(f"{name}: samples of {sample} are not {wanted.sample}, which the model reads")
    if wanted.n_ids and memory.bytes:
        for token in min(memory.integers()), max(memory.integers()):
            if not 0 <= token < wanted.n_ids:
                raise ValueError(f"{name}: token {token} is none of the {wanted.n_ids}, from 0 on, which the model knows")
    return memory


def feeds(inputs, arrays):
    """The arrays as wf_feed, how many they are, their number of samples, and what keeps their memory.
    `inputs`: name to Input."""
    memories = {name: _fed(array, name, inputs.get(name)) for name, array in arrays.items()}
    numbers = {memory.shape[0] if memory.shape else 0 for memory in memories.values()}
    if not arrays:
        raise ValueError(f"no arrays are given; the model has the inputs {', '.join(inputs)}")
    if len(numbers) != 1:
        raise ValueError(f"arrays of {sorted(numbers)} samples: all inputs have the same number")
    fed = (_Feed * len(memories))(*((text(name), m.at, m.bytes) for name, m in memories.items()))
    return fed, len(memories), numbers.pop(), memories


# ---- weft's own arrays ----

_array_create = function("wf_array_create", P, C.c_int, C.POINTER(Shape), S, P, C.POINTER(P))
_array_destroy = function("wf_array_destroy", P, result=None)
_array_to_dlpack = function("wf_array_to_dlpack", P, C.POINTER(P))
_array_device = function("wf_array_device", P, result=S)
_array_shape = function("wf_array_shape", P, result=Shape)
_array_dtype = function("wf_array_dtype", P)


def _n_references(capsules):
    capsule = capsules.pop()
    return sys.getrefcount(capsule), capsule


_UNUSED = _n_references([object()])[0]


class Array(Owner):
    """An array on one of weft's devices. It is a copy of another library's array; other libraries take
    it by DLPack, without a copy: numpy.from_dlpack(array), torch.from_dlpack(array)."""
    _destroy = _array_destroy

    def __init__(self, of: ArrayLike, device: str = "cpu:0"):
        self._given = []
        memory = Memory(of, "of")
        if memory.dtype not in DTYPES:
            raise TypeError(f"elements are {memory.dtype}; weft has arrays of {', '.join(DTYPES)}")
        self._make(_array_create, DTYPES.index(memory.dtype), Shape.of(memory.shape), text(device), memory.at)

    @property
    def device(self) -> str:
        """The device's name, such as "cpu:1"."""
        return _array_device(self._at).decode()

    @property
    def dtype(self) -> str:
        """The dtype's name, such as "float32"."""
        return DTYPES[_array_dtype(self._at)]

    @property
    def shape(self) -> Tuple[int, ...]:
        """Its dims; () of a scalar."""
        return _array_shape(self._at).dims()

    def __repr__(self):
        return f"<weft.Array: {self.dtype} {list(self.shape)} on {self.device}>" if self._own else "<weft.Array: closed>"

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy: Optional[bool] = None):
        if not max_version or max_version[0] < 1:
            raise BufferError("weft gives DLPack of version 1 only")
        if copy or dl_device not in (None, (_CPU, 0)):
            raise BufferError("weft gives the host's memory, without a copy")
        managed = P()
        self._end_capsules()
        context.check(_array_to_dlpack(self._at, C.byref(managed)))
        self._given.append(_new_capsule(managed, _CAPSULE, None))
        return self._given[-1]

    def __dlpack_device__(self):
        return _CPU, 0

    def _end_capsules(self):
        """Frees the tensors of capsules that no library has consumed and no variable holds. A capsule's
        destructor would be Python code, which may not run while an exception is raised."""
        given, self._given = self._given, []
        while given:
            n_references, capsule = _n_references(given)
            if not _is_capsule(capsule, _CAPSULE):
                continue
            if n_references > _UNUSED:
                self._given.append(capsule)
                continue
            managed = _capsule_pointer(capsule, _CAPSULE)
            _rename_capsule(capsule, _USED)
            C.CFUNCTYPE(None, P)(_DLManaged.from_address(managed).deleter)(managed)

    def close(self):
        self._end_capsules()
        super().close()

    __del__ = close
