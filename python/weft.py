"""weft from Python: models by name, trained on arrays, through libweft.so and ctypes alone.

    import numpy as np, weft
    model = weft.Model("resnet18", channels=1, height=28, width=28, n_classes=10)
    trainer = weft.Trainer(model, "batch=64,lr=0.05,momentum=0.9,threads=1", plan="dp=2")
    result = trainer.step(x=pixels, y=labels)      # float32 [64, 1, 28, 28], int32 [64]
    print(result.loss, result.accuracy)
    trainer.save("model.safetensors")

Arrays are anything with Python's buffer protocol (NumPy's, array.array) that is contiguous; they are
read where they are, without a copy. Recipes and plans are the texts of wf_recipe_parse and
wf_plan_parse. What the library refuses is raised as weft.Error with its sentence.

The library is the one that WEFT_LIBRARY names, else build/libweft.so beside this folder, else an
installed one. This module is of the library's version: structures of another are refused.
"""
import collections
import contextlib
import ctypes as C
import ctypes.util
import json
import os
import struct
import sys
import tempfile
import threading

__all__ = ["Array", "Error", "Job", "Model", "Result", "Trainer", "models"]


class Error(Exception):
    """What a call was refused for; `name` is the status, such as "SHAPE"."""

    def __init__(self, name, sentence):
        super().__init__(sentence)
        self.name = name


# ---- the library ----

def _open_library():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "libweft.so")
    for path in (os.environ.get("WEFT_LIBRARY"), beside if os.path.exists(beside) else None,
                 ctypes.util.find_library("weft"), "libweft.so"):
        if path:
            return C.CDLL(path)


_lib = _open_library()


def _function(name, *arguments, result=C.c_int):
    function = getattr(_lib, name)
    function.argtypes, function.restype = arguments, result
    return function


_P, _S = C.c_void_p, C.c_char_p
_SIZES = ("n_layers", "hidden", "n_heads", "n_positions")


def _text(text):
    """As C has it: without a NUL byte, which would end it."""
    text = os.fsencode(text)
    if b"\0" in text:
        raise ValueError(f"{text!r} has a NUL byte")
    return text


class _Config(C.Structure):
    """One that begins with its own size. ctypes would cut numbers, and take a number for a place."""

    def __init__(self, **values):
        kinds = dict(self._fields_[1:])
        for name, value in values.items():
            if name not in kinds:
                raise TypeError(f"there is no {name!r}; there are {', '.join(kinds)}")
            if kinds[name] is _S and value is not None:
                values[name] = _text(value)
            elif kinds[name] not in (_S, _P) and kinds[name](value).value != value:
                raise OverflowError(f"{name}: {value} does not fit")
        super().__init__(**values)
        self.struct_size = C.sizeof(self)


class _ModelConfig(_Config):
    _fields_ = [("struct_size", C.c_size_t), *((name, C.c_int64) for name in
                ("channels", "height", "width", "n_classes", "n_tokens")),
                ("loss", C.c_int), ("small_stem", C.c_int), ("dropout", C.c_double),
                *((name, C.c_int64) for name in _SIZES), ("cached", C.c_int),
                ("label_smoothing", C.c_double), ("embedding", C.c_int64), ("tied", C.c_int),
                ("mixup", C.c_int)]


class _TrainerConfig(_Config):
    _fields_ = [("struct_size", C.c_size_t), ("devices", _S), ("device_memory_bytes", C.c_size_t),
                ("timeout_ms", C.c_int64), ("profile", C.c_int), ("trace", C.c_int),
                ("keep_gradients", C.c_int), ("forward_only", C.c_int), ("job", _P),
                ("own_batch", C.c_int), ("shard_bytes", C.c_size_t),
                ("host_memory_bytes", C.c_size_t), ("folder", _S), ("save_async", C.c_int)]


class _JobConfig(_Config):
    _fields_ = [("struct_size", C.c_size_t), ("rank", C.c_int), ("n_ranks", C.c_int), ("name", _S),
                ("timeout_ms", C.c_int64), ("init", _S), ("token", _S), ("wire", _S)]


class _ModelInfo(C.Structure):
    _fields_ = [("name", _S), ("takes_tokens", C.c_int)]


class _Feed(C.Structure):
    _fields_ = [("name", _S), ("data", _P), ("bytes", C.c_size_t)]


class _StepResult(C.Structure):
    _fields_ = [("loss", C.c_double), ("n_rows", C.c_int64), ("n_hits", C.c_int64),
                ("lr", C.c_double), ("gradient_norm", C.c_double), ("stop_reason", C.c_int)]


class _Shape(C.Structure):
    _fields_ = [("n_dims", C.c_int), ("dim", C.c_int64 * 6)]


_status_name = _function("wf_status_name", C.c_int, result=_S)
_context_create = _function("wf_context_create", _P, C.POINTER(_P))
_context_error = _function("wf_context_error", _P, result=_S)
_registry = _function("wf_model_registry", C.c_int, result=C.POINTER(_ModelInfo))
_registry_find = _function("wf_model_registry_find", _S, result=C.POINTER(_ModelInfo))
_model_find = _function("wf_model_find", _P, _S, C.POINTER(_ModelConfig), C.POINTER(_P))
_model_destroy = _function("wf_model_destroy", _P, result=None)
_recipe_parse = _function("wf_recipe_parse", _P, _S, _P)
_plan_parse = _function("wf_plan_parse", _P, _S, C.POINTER(_P))
_plan_destroy = _function("wf_plan_destroy", _P, result=None)
_job_join = _function("wf_job_join", _P, C.POINTER(_JobConfig), C.POINTER(_P))
_job_leave = _function("wf_job_leave", _P, result=None)
_job_rank = _function("wf_job_rank", _P)
_job_n_ranks = _function("wf_job_n_ranks", _P)
_trainer_create = _function("wf_trainer_create", _P, _P, _P, _P, C.POINTER(_TrainerConfig), C.POINTER(_P))
_trainer_destroy = _function("wf_trainer_destroy", _P, result=None)
_trainer_step = _function("wf_trainer_step", _P, C.POINTER(_Feed), C.c_int, C.c_int64, C.POINTER(_StepResult))
_trainer_eval = _function("wf_trainer_eval", _P, C.POINTER(_Feed), C.c_int, C.c_int64, C.POINTER(_StepResult))
_trainer_forward = _function("wf_trainer_forward", _P, C.POINTER(_Feed), C.c_int, C.c_int64, _S, _P, C.c_size_t)
_trainer_read = _function("wf_trainer_read", _P, _S, _P, C.c_size_t)
_trainer_read_gradient = _function("wf_trainer_read_gradient", _P, _S, _P, C.c_size_t)
_trainer_use_average = _function("wf_trainer_use_average", _P, C.c_int)
_trainer_save = _function("wf_trainer_save", _P, _S)
_trainer_save_state = _function("wf_trainer_save_state", _P, _S, _P, C.c_int)
_trainer_load_state = _function("wf_trainer_load_state", _P, _S)
_trainer_load_weights = _function("wf_trainer_load_weights", _P, _S)
_trainer_n_steps = _function("wf_trainer_n_steps", _P, result=C.c_int64)
_trainer_sha256 = _function("wf_trainer_weights_sha256", _P, _P)
_array_create = _function("wf_array_create", _P, C.c_int, C.POINTER(_Shape), _S, _P, C.POINTER(_P))
_array_destroy = _function("wf_array_destroy", _P, result=None)
_array_to_dlpack = _function("wf_array_to_dlpack", _P, C.POINTER(_P))
_array_from_dlpack = _function("wf_array_from_dlpack", _P, _P, _S, C.POINTER(_P))
_array_device = _function("wf_array_device", _P, result=_S)


class _Context:
    """One a process; it is the last that goes."""

    def __init__(self):
        self.at = _P()
        if _context_create(None, C.byref(self.at)):
            raise MemoryError("weft's context")

    def check(self, status):
        if status:
            raise Error(_status_name(status).decode(), _context_error(self.at).decode())


_context = _Context()


class _Owner:
    """Of something of the library's, until close() or the end."""
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
        at = _P()
        _context.check(create(_context.at, *arguments, C.byref(at)))
        self._own, self._process = at, os.getpid()

    def close(self):
        """When the call that another thread is in has ended."""
        if self._process != os.getpid():  # whose lock may never be let go
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


# ---- memory of arrays ----

class _Buffer(C.Structure):
    _fields_ = [("buf", _P), ("obj", _P), ("len", C.c_ssize_t), ("itemsize", C.c_ssize_t),
                ("readonly", C.c_int), ("ndim", C.c_int), ("format", _S),
                ("shape", C.POINTER(C.c_ssize_t)), ("strides", _P), ("suboffsets", _P), ("internal", _P)]


_get_buffer = C.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [C.py_object, C.POINTER(_Buffer), C.c_int]
_release_buffer = C.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [C.POINTER(_Buffer)], None
_WRITABLE, _FORMAT, _ND = 1, 4, 8


class _Memory:
    """Where an object's bytes are, as long as this lives."""

    def __init__(self, array, flags=0):
        self.view = _Buffer()
        _get_buffer(array, self.view, flags | _FORMAT | _ND)  # refuses what is not contiguous
        self.at, self.bytes = self.view.buf, self.view.len
        self.format = (self.view.format or b"B").decode().lstrip("@=<")
        self.shape = self.view.shape[:self.view.ndim]

    def __del__(self):
        _release_buffer(self.view)


def _into(array, formats="f"):
    memory = _Memory(array, _WRITABLE)
    if memory.format not in formats:
        raise TypeError(f"elements {memory.format!r} are not {formats!r}, which is what is written")
    return memory


def _feeds(inputs, arrays):
    """`inputs`: name to format, shape and, of tokens, how many there are. The library sees bytes, so what they mean is checked here."""
    memories = {name: _Memory(array) for name, array in arrays.items()}
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
    feeds = (_Feed * len(memories))(*((name.encode(), m.at, m.bytes) for name, m in memories.items()))
    return memories, feeds, len(memories), numbers.pop()


# ---- what a program uses ----

class Result(collections.namedtuple("Result", "loss n_rows n_hits lr gradient_norm stop_reason")):
    """Of a step: mean loss over n_rows rows (samples or tokens), of which n_hits were right."""

    @property
    def accuracy(self):
        return self.n_hits / self.n_rows if self.n_rows else float("nan")


def _result(of):
    return Result(*(getattr(of, name) for name in Result._fields))


def models():
    """Names that Model takes."""
    names = []
    while _registry(len(names)):
        names.append(_registry(len(names)).contents.name.decode())
    return names


class Model(_Owner):
    """A ready-made model. Sizes are those of wf_model_config: n_classes, height, n_tokens, hidden, ..."""
    _destroy = _model_destroy

    def __init__(self, name, **sizes):
        sizes = {**dict(channels=3, height=224, width=224, n_classes=1000), **sizes}
        self._make(_model_find, _text(name), _ModelConfig(**sizes))
        image = ("f", tuple(sizes[key] for key in ("channels", "height", "width")))
        x = ("i", None, sizes["n_classes"]) if _registry_find(_text(name)).contents.takes_tokens else image
        self._inputs = {"x": x, "y": ("f" if sizes.get("loss") else "i", None), "position": ("i", None)}


class Job(_Owner):
    """This process as one rank of several: of weft run, torchrun, mpirun or srun (init="env://")."""
    _destroy = _job_leave

    def __init__(self, init="env://", **config):
        self._make(_job_join, _JobConfig(**{"n_ranks": 1, **config, "init": init or None}))
        self.rank, self.n_ranks = _job_rank(self._at), _job_n_ranks(self._at)


class Trainer(_Owner):
    """A model, stepped. `config` has fields of wf_trainer_config: devices="cpu:2", own_batch=1, ..."""
    _destroy = _trainer_destroy

    def __init__(self, model, recipe="", plan="", job=None, **config):
        recipe, plan = (",".join(f"{key}={value}" for key, value in of.items()) if isinstance(of, dict) else of
                        for of in (recipe, plan))
        self._job, self._inputs = job, model._inputs  # the job outlives the trainer
        self._lock = threading.RLock()
        parsed, planned = C.create_string_buffer(1 << 16), _P()  # of which a recipe takes what it needs
        _context.check(_recipe_parse(_context.at, _text(recipe), parsed))
        _context.check(_plan_parse(_context.at, _text(plan), C.byref(planned)))
        try:
            self._make(_trainer_create, model._at, parsed, planned,
                       _TrainerConfig(**config, job=job._at if job else None))
        finally:
            _plan_destroy(planned)

    def _call(self, function, *arguments):
        """One thread at a time, whoever calls."""
        self._at  # another process's is refused before its lock
        with self._lock:
            _context.check(function(self._at, *arguments))

    def _run(self, function, arrays):
        memories, feeds, n_feeds, n_samples = _feeds(self._inputs, arrays)
        result = _StepResult()
        self._call(function, feeds, n_feeds, n_samples, result)
        del memories
        return _result(result)

    def step(self, **arrays):
        """One step of the optimizer on these inputs, by their names; dim 0 is samples."""
        return self._run(_trainer_step, arrays)

    def eval(self, **arrays):
        """Loss and hits, changing nothing."""
        return self._run(_trainer_eval, arrays)

    def forward(self, output, into, **arrays):
        """Writes the model's output of that name into a writable array, which it returns."""
        memories, feeds, n_feeds, n_samples = _feeds(self._inputs, arrays)
        to = _into(into)
        self._call(_trainer_forward, feeds, n_feeds, n_samples, _text(output), to.at, to.bytes)
        del memories
        return into

    def read(self, name, into, gradient=False):
        """Copies a parameter or buffer, or (keep_gradients=1) a gradient, into a writable array."""
        to = _into(into, "ql" if name.endswith("num_batches_tracked") else "f")
        read = _trainer_read_gradient if gradient else _trainer_read
        self._call(read, _text(name), to.at, to.bytes)
        return into

    def use_average(self, used=True):
        """With a recipe's ema: the weights are their moving average from now on, or (False) themselves
        again. Steps, and the state, want the latter."""
        self._call(_trainer_use_average, used)

    def save(self, path):
        """Weights, as safetensors."""
        self._call(_trainer_save, _text(path))

    def load(self, path):
        """Weights from safetensors: a file, an index of shards, or a folder."""
        self._call(_trainer_load_weights, _text(path))

    def save_state(self, path):
        """All that load_state needs to go on with the same bits, under whatever plan."""
        self._call(_trainer_save_state, _text(path), None, 0)

    def load_state(self, path):
        self._call(_trainer_load_state, _text(path))

    def weights(self):
        """Name to (dtype, shape, bytes) of every parameter and buffer; NumPy makes arrays of them
        by numpy.frombuffer(data, dtype).reshape(shape)."""
        with tempfile.TemporaryDirectory(prefix="weft-") as folder:
            path = os.path.join(folder, "weights.safetensors")
            self.save(path)
            with open(path, "rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
                data = memoryview(file.read())
        names = {"F32": "float32", "F64": "float64", "I32": "int32", "I64": "int64", "U8": "uint8"}
        return {name: (names.get(about["dtype"], about["dtype"]), tuple(about["shape"]),
                       data[slice(*about["data_offsets"])])
                for name, about in header.items() if name != "__metadata__"}

    @property
    def n_steps(self):
        with self._lock:
            return _trainer_n_steps(self._at)

    @property
    def weights_sha256(self):
        text = C.create_string_buffer(65)
        self._call(_trainer_sha256, text)
        return text.value.decode()


# ---- arrays, by DLPack ----

_CAPSULE, _USED = b"dltensor_versioned", b"used_dltensor_versioned"
_new_capsule = C.pythonapi.PyCapsule_New
_new_capsule.argtypes, _new_capsule.restype = [_P, _S, _P], C.py_object
_is_capsule = C.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [C.py_object, _S]
_capsule_pointer = C.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [C.py_object, _S], _P
_rename_capsule = C.pythonapi.PyCapsule_SetName
_rename_capsule.argtypes = [C.py_object, _S]
_DELETER_AT = 8 + C.sizeof(_P)  # in DLManagedTensorVersioned: behind the version and its manager's


def _n_references(capsules):
    capsule = capsules.pop()
    return sys.getrefcount(capsule), capsule


_NOBODYS = _n_references([object()])[0]


class Array(_Owner):
    """An array on one of weft's devices, from any library's by DLPack (copied) or from a buffer; other
    libraries take it by from_dlpack without a copy."""
    _destroy = _array_destroy
    _dtypes = {"f": 0, "d": 2, "i": 3, "q": 4, "l": 4, "B": 5}

    def __init__(self, of, device="cpu:0"):
        self._given = []
        if hasattr(of, "__dlpack__"):
            capsule = of.__dlpack__(max_version=(1, 0))
            if not _is_capsule(capsule, _CAPSULE):
                raise BufferError("this library knows no DLPack of version 1")
            self._make(_array_from_dlpack, _capsule_pointer(capsule, _CAPSULE), _text(device))
            _rename_capsule(capsule, _USED)
            return
        memory = _Memory(of)
        if memory.format not in self._dtypes or len(memory.shape) > 6:
            raise TypeError(f"elements {memory.format!r} in {len(memory.shape)} dims: weft has no such array")
        shape = _Shape(len(memory.shape), tuple(memory.shape))
        self._make(_array_create, self._dtypes[memory.format], shape, _text(device), memory.at)

    @property
    def device(self):
        return _array_device(self._at).decode()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if not max_version or max_version[0] < 1:
            raise BufferError("weft gives DLPack of version 1 only")
        if copy or dl_device not in (None, (1, 0)):
            raise BufferError("weft gives the host's memory, without a copy")
        managed = _P()
        self._end_capsules()
        _context.check(_array_to_dlpack(self._at, C.byref(managed)))
        self._given.append(_new_capsule(managed, _CAPSULE, None))
        return self._given[-1]

    def _end_capsules(self):
        """Those that nobody has taken and nobody has any more. A destructor would be Python's, which may not
        run where an exception is on its way."""
        given, self._given = self._given, []
        while given:
            n_references, capsule = _n_references(given)
            if not _is_capsule(capsule, _CAPSULE):
                continue
            if n_references > _NOBODYS:
                self._given.append(capsule)
                continue
            managed = _capsule_pointer(capsule, _CAPSULE)
            _rename_capsule(capsule, _USED)
            C.CFUNCTYPE(None, _P)(_P.from_address(managed + _DELETER_AT).value)(managed)

    def close(self):
        self._end_capsules()
        super().close()

    __del__ = close

    def __dlpack_device__(self):
        return 1, 0
