"""The trainer, and the job that its ranks are processes of."""
import collections
import ctypes as C
import math
import threading

from ._arrays import DTYPES, _Feed, feeds, written
from ._library import Config, Owner, P, S, Shape, context, function, text


class _TrainerConfig(Config):
    _fields_ = [("struct_size", C.c_size_t), ("devices", S), ("device_memory_bytes", C.c_size_t),
                ("timeout_ms", C.c_int64), ("profile", C.c_int), ("trace", C.c_int),
                ("keep_gradients", C.c_int), ("forward_only", C.c_int), ("job", P),
                ("own_batch", C.c_int), ("shard_bytes", C.c_size_t),
                ("host_memory_bytes", C.c_size_t), ("folder", S), ("save_async", C.c_int)]


class _JobConfig(Config):
    _fields_ = [("struct_size", C.c_size_t), ("rank", C.c_int), ("n_ranks", C.c_int), ("name", S),
                ("timeout_ms", C.c_int64), ("init", S), ("token", S), ("wire", S)]


class _StepResult(C.Structure):
    _fields_ = [("loss", C.c_double), ("n_rows", C.c_int64), ("n_hits", C.c_int64),
                ("lr", C.c_double), ("gradient_norm", C.c_double), ("stop_reason", C.c_int)]


class _TrainerTensor(C.Structure):
    _fields_ = [("name", S), ("dtype", C.c_int), ("shape", Shape)]


_recipe_parse = function("wf_recipe_parse", P, S, P)
_plan_parse = function("wf_plan_parse", P, S, C.POINTER(P))
_plan_destroy = function("wf_plan_destroy", P, result=None)
_job_join = function("wf_job_join", P, C.POINTER(_JobConfig), C.POINTER(P))
_job_leave = function("wf_job_leave", P, result=None)
_job_rank = function("wf_job_rank", P)
_job_n_ranks = function("wf_job_n_ranks", P)
_create = function("wf_trainer_create", P, P, P, P, C.POINTER(_TrainerConfig), C.POINTER(P))
_destroy = function("wf_trainer_destroy", P, result=None)
_step = function("wf_trainer_step", P, C.POINTER(_Feed), C.c_int, C.c_int64, C.POINTER(_StepResult))
_eval = function("wf_trainer_eval", P, C.POINTER(_Feed), C.c_int, C.c_int64, C.POINTER(_StepResult))
_forward = function("wf_trainer_forward", P, C.POINTER(_Feed), C.c_int, C.c_int64, S, P, C.c_size_t)
_dtype_bytes = function("wf_dtype_bytes", C.c_int, result=C.c_size_t)
_tensor_get = function("wf_trainer_tensor_get", P, C.c_int, C.POINTER(_TrainerTensor))
_read = function("wf_trainer_read", P, S, P, C.c_size_t)
_read_gradient = function("wf_trainer_read_gradient", P, S, P, C.c_size_t)
_use_average = function("wf_trainer_use_average", P, C.c_int)
_save = function("wf_trainer_save", P, S)
_save_state = function("wf_trainer_save_state", P, S, P, C.c_int)
_load_state = function("wf_trainer_load_state", P, S)
_load_weights = function("wf_trainer_load_weights", P, S)
_save_wait = function("wf_trainer_save_wait", P)
_evaluated = function("wf_trainer_evaluated", P, C.c_double, result=None)
_reset_hidden = function("wf_trainer_reset_hidden", P, C.c_int, result=None)
_TRAIN, _FORWARD = 0, 1  # wf_program_kind
_n_steps = function("wf_trainer_n_steps", P, result=C.c_int64)
_sha256 = function("wf_trainer_weights_sha256", P, P)


class Result(collections.namedtuple("Result", "loss n_rows n_hits lr gradient_norm stop_reason")):
    """Of a step: mean loss over n_rows rows (samples or tokens), of which n_hits were right."""

    @property
    def accuracy(self):
        return self.n_hits / self.n_rows if self.n_rows else float("nan")


def _result(of):
    return Result(*(getattr(of, name) for name in Result._fields))


class Job(Owner):
    """This process as one rank of several: of weft run, torchrun, mpirun or srun (init="env://")."""
    _destroy = _job_leave

    def __init__(self, init="env://", **config):
        self._make(_job_join, _JobConfig(**{"n_ranks": 1, **config, "init": init or None}))
        self.rank, self.n_ranks = _job_rank(self._at), _job_n_ranks(self._at)


class Trainer(Owner):
    """A model, stepped. `config` has fields of wf_trainer_config: devices="cpu:2", own_batch=1, ..."""
    _destroy = _destroy

    def __init__(self, model, recipe="", plan="", job=None, **config):
        recipe, plan = (",".join(f"{key}={value}" for key, value in of.items()) if isinstance(of, dict) else of
                        for of in (recipe, plan))
        self._job, self._inputs = job, model._inputs  # the job outlives the trainer
        self._lock = threading.RLock()
        parsed, planned = C.create_string_buffer(1 << 16), P()  # of which a recipe takes what it needs
        context.check(_recipe_parse(context.at, text(recipe), parsed))
        context.check(_plan_parse(context.at, text(plan), C.byref(planned)))
        try:
            self._make(_create, model._at, parsed, planned,
                       _TrainerConfig(**config, job=job._at if job else None))
        finally:
            _plan_destroy(planned)
        self._tensors = dict(self._list_tensors())

    def _list_tensors(self):
        tensor, i = _TrainerTensor(), 0
        while _tensor_get(self._at, i, tensor):
            i += 1
            yield tensor.name.decode(), (DTYPES[tensor.dtype], tensor.shape.dims())

    def _call(self, function, *arguments):
        """One thread at a time, whoever calls."""
        self._at  # another process's is refused before its lock
        with self._lock:
            context.check(function(self._at, *arguments))

    def _run(self, function, arrays):
        fed, n_feeds, n_samples, memories = feeds(self._inputs, arrays)
        result = _StepResult()
        self._call(function, fed, n_feeds, n_samples, result)
        del memories
        return _result(result)

    def step(self, **arrays):
        """One step of the optimizer on these inputs, by their names; dim 0 is samples."""
        return self._run(_step, arrays)

    def eval(self, **arrays):
        """Loss and hits, changing nothing."""
        return self._run(_eval, arrays)

    def forward(self, output, into, **arrays):
        """Writes the model's output of that name into a writable array, which it returns."""
        fed, n_feeds, n_samples, memories = feeds(self._inputs, arrays)
        to = written(into)
        self._call(_forward, fed, n_feeds, n_samples, text(output), to.at, to.bytes)
        del memories
        return into

    def read(self, name, into, gradient=False):
        """Copies a parameter or buffer, or (keep_gradients=1) a gradient, into a writable array."""
        to = written(into, self._tensors.get(name, ("float32",))[0])
        self._call(_read_gradient if gradient else _read, text(name), to.at, to.bytes)
        return into

    def reset_hidden(self, steps: bool = True, evals: bool = True) -> None:
        """Begins a new text: the hidden state (LSTM) of the next step, and of the next eval or forward,
        is zero. steps=False or evals=False leaves that one as it is. Otherwise sample s of a batch goes
        on from where sample s of the batch before has ended, in steps and in evals apart."""
        for kind in (_TRAIN,) * steps + (_FORWARD,) * evals:
            self._call(_reset_hidden, kind)

    def evaluated(self, loss: float) -> None:
        """Reports a loss on test data to the recipe's schedule lr_schedule=plateau; PyTorch's
        ReduceLROnPlateau.step(loss)."""
        self._call(_evaluated, loss)

    def use_average(self, used=True):
        """With a recipe's ema: the weights are their moving average from now on, or (False) themselves
        again. Steps, and the state, want the latter."""
        self._call(_use_average, used)

    def save(self, path):
        """Weights, as safetensors."""
        self._call(_save, text(path))

    def load(self, path):
        """Weights from safetensors: a file, an index of shards, or a folder."""
        self._call(_load_weights, text(path))

    def save_state(self, path):
        """All that load_state needs to go on with the same bits, under whatever plan."""
        self._call(_save_state, text(path), None, 0)

    def load_state(self, path):
        self._call(_load_state, text(path))

    def save_wait(self) -> None:
        """Waits until the files of earlier saves are in place (save_async=1)."""
        self._call(_save_wait)

    def weights(self):
        """Name to (dtype, shape, bytes) of every parameter and buffer; NumPy makes arrays of them
        by numpy.frombuffer(data, dtype).reshape(shape)."""
        return {name: (dtype, shape, self._read_bytes(name)) for name, (dtype, shape) in self._tensors.items()}

    def _read_bytes(self, name):
        dtype, shape = self._tensors[name]
        data = bytearray(_dtype_bytes(DTYPES.index(dtype)) * math.prod(shape))
        self._call(_read, text(name), (C.c_char * len(data)).from_buffer(data), len(data))
        return memoryview(data)

    @property
    def n_steps(self):
        with self._lock:
            return _n_steps(self._at)

    @property
    def weights_sha256(self):
        digest = C.create_string_buffer(65)
        self._call(_sha256, digest)
        return digest.value.decode()
