"""Memory of arrays in Python, and weft's own arrays."""
import ctypes as C
import sys

from ._library import Owner, P, S, Shape, context, function, text

# ---- the host's memory of an array ----


class _Buffer(C.Structure):
    _fields_ = [("buf", P), ("obj", P), ("len", C.c_ssize_t), ("itemsize", C.c_ssize_t),
                ("readonly", C.c_int), ("ndim", C.c_int), ("format", S),
                ("shape", C.POINTER(C.c_ssize_t)), ("strides", P), ("suboffsets", P), ("internal", P)]


_get_buffer = C.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [C.py_object, C.POINTER(_Buffer), C.c_int]
_release_buffer = C.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [C.POINTER(_Buffer)], None
_WRITABLE, _FORMAT, _ND = 1, 4, 8


class Memory:
    """Where an object's bytes are, as long as this lives."""

    def __init__(self, array, flags=0):
        self.view = _Buffer()
        _get_buffer(array, self.view, flags | _FORMAT | _ND)  # refuses what is not contiguous
        self.at, self.bytes = self.view.buf, self.view.len
        self.format = (self.view.format or b"B").decode().lstrip("@=<")
        self.shape = self.view.shape[:self.view.ndim]

    def __del__(self):
        _release_buffer(self.view)


def writable(array, formats="f"):
    memory = Memory(array, _WRITABLE)
    if memory.format not in formats:
        raise TypeError(f"elements {memory.format!r} are not {formats!r}, which is what is written")
    return memory


class _Feed(C.Structure):
    _fields_ = [("name", S), ("data", P), ("bytes", C.c_size_t)]


def feeds(inputs, arrays):
    """`inputs`: name to format, shape and, of tokens, how many there are. The library sees bytes, so what they mean is checked here."""
    memories = {name: Memory(array) for name, array in arrays.items()}
    for name, memory in memories.items():
        elements, shape, *n_tokens = inputs.get(name, (memory.format, None))
        if memory.format != elements:
            raise TypeError(f"{name}: elements {memory.format!r} are not {elements!r}, which the model reads")
        if shape and len(memory.shape) == len(shape) + 1 and tuple(memory.shape[1:]) != shape:
            raise ValueError(f"{name}: samples of {tuple(memory.shape[1:])} are not {shape}, which the model reads")
        if n_tokens and memory.bytes:
            ids = memoryview((C.c_char * memory.bytes).from_address(memory.at)).cast("B").cast("i")
            for token in min(ids), max(ids):
                if not 0 <= token < n_tokens[0]:
                    raise ValueError(f"{name}: token {token} is none of the {n_tokens[0]}, from 0 on, which the model knows")
    numbers = {m.shape[0] if m.shape else 0 for m in memories.values()}
    if len(numbers) != 1:
        raise ValueError(f"arrays of {sorted(numbers)} samples: all inputs have the same number")
    fed = (_Feed * len(memories))(*((name.encode(), m.at, m.bytes) for name, m in memories.items()))
    return memories, fed, len(memories), numbers.pop()


# ---- weft's own arrays, and DLPack ----

_array_create = function("wf_array_create", P, C.c_int, C.POINTER(Shape), S, P, C.POINTER(P))
_array_destroy = function("wf_array_destroy", P, result=None)
_array_to_dlpack = function("wf_array_to_dlpack", P, C.POINTER(P))
_array_from_dlpack = function("wf_array_from_dlpack", P, P, S, C.POINTER(P))
_array_device = function("wf_array_device", P, result=S)

CAPSULE, _USED = b"dltensor_versioned", b"used_dltensor_versioned"
_new_capsule = C.pythonapi.PyCapsule_New
_new_capsule.argtypes, _new_capsule.restype = [P, S, P], C.py_object
_is_capsule = C.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [C.py_object, S]
capsule_pointer = C.pythonapi.PyCapsule_GetPointer
capsule_pointer.argtypes, capsule_pointer.restype = [C.py_object, S], P
_rename_capsule = C.pythonapi.PyCapsule_SetName
_rename_capsule.argtypes = [C.py_object, S]
_DELETER_AT = 8 + C.sizeof(P)  # in DLManagedTensorVersioned: behind the version and its manager's


def _n_references(capsules):
    capsule = capsules.pop()
    return sys.getrefcount(capsule), capsule


_NOBODYS = _n_references([object()])[0]


class Array(Owner):
    """An array on one of weft's devices, from any library's by DLPack (copied) or from a buffer; other
    libraries take it by from_dlpack without a copy."""
    _destroy = _array_destroy
    _dtypes = {"f": 0, "d": 2, "i": 3, "q": 4, "l": 4, "B": 5}

    def __init__(self, of, device="cpu:0"):
        self._given = []
        if hasattr(of, "__dlpack__"):
            capsule = of.__dlpack__(max_version=(1, 0))
            if not _is_capsule(capsule, CAPSULE):
                raise BufferError("this library knows no DLPack of version 1")
            self._make(_array_from_dlpack, capsule_pointer(capsule, CAPSULE), text(device))
            _rename_capsule(capsule, _USED)
            return
        memory = Memory(of)
        if memory.format not in self._dtypes or len(memory.shape) > 6:
            raise TypeError(f"elements {memory.format!r} in {len(memory.shape)} dims: weft has no such array")
        shape = Shape.of(memory.shape)
        self._make(_array_create, self._dtypes[memory.format], shape, text(device), memory.at)

    @property
    def device(self):
        return _array_device(self._at).decode()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if not max_version or max_version[0] < 1:
            raise BufferError("weft gives DLPack of version 1 only")
        if copy or dl_device not in (None, (1, 0)):
            raise BufferError("weft gives the host's memory, without a copy")
        managed = P()
        self._end_capsules()
        context.check(_array_to_dlpack(self._at, C.byref(managed)))
        self._given.append(_new_capsule(managed, CAPSULE, None))
        return self._given[-1]

    def _end_capsules(self):
        """Those that nobody has taken and nobody has any more. A destructor would be Python's, which may not
        run where an exception is on its way."""
        given, self._given = self._given, []
        while given:
            n_references, capsule = _n_references(given)
            if not _is_capsule(capsule, CAPSULE):
                continue
            if n_references > _NOBODYS:
                self._given.append(capsule)
                continue
            managed = capsule_pointer(capsule, CAPSULE)
            _rename_capsule(capsule, _USED)
            C.CFUNCTYPE(None, P)(P.from_address(managed + _DELETER_AT).value)(managed)

    def close(self):
        self._end_capsules()
        super().close()

    __del__ = close

    def __dlpack_device__(self):
        return 1, 0
