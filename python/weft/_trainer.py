"""The trainer, and the job that its ranks are processes of."""
import contextlib
import ctypes as C
import math
import os
import threading
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple, Union

from ._arrays import DTYPES, ArrayLike, Memory, _Feed, feeds, written
from ._graph import Refused
from ._library import Config, Error, Owner, P, S, Shape, context, function, text
from ._model import FunctionModel, Model

Path = Union[str, bytes, os.PathLike]


class _TrainerConfig(Config):
    _fields_ = [("struct_size", C.c_size_t), ("devices", S), ("device_memory_bytes", C.c_size_t),
                ("timeout_ms", C.c_int64), ("profile", C.c_int), ("trace", C.c_int),
                ("keep_gradients", C.c_int), ("forward_only", C.c_int), ("job", P),
                ("own_batch", C.c_int), ("shard_bytes", C.c_size_t),
                ("host_memory_bytes", C.c_size_t), ("folder", S), ("save_async", C.c_int),
                ("keep_undo", C.c_int), ("no_init", C.c_int)]


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
_gradients = function("wf_trainer_gradients", P, C.POINTER(_Feed), C.c_int, C.c_int64,
                      C.POINTER(_StepResult))
_write = function("wf_trainer_write", P, S, P, C.c_size_t)
_count_step = function("wf_trainer_count_step", P)
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


class Result(NamedTuple):
    """The result of a step or an eval, the same in every process of a job.

    loss           mean over n_rows rows (samples or tokens; ignored labels are left out)
    n_hits         rows whose largest logit is the label; 0 without labels
    lr             learning rate of the step
    gradient_norm  before clipping; 0 unless the recipe clips
    stop_reason    reason for which a process of the job asks to stop; 0: go on
    """
    loss: float
    n_rows: int
    n_hits: int
    lr: float
    gradient_norm: float
    stop_reason: int

    @property
    def accuracy(self) -> float:
        """n_hits / n_rows"""
        return self.n_hits / self.n_rows if self.n_rows else float("nan")


class Job(Owner):
    """This process as one rank of several. weft run, torchrun, mpirun or srun has started them, and
    init="env://" reads what it has set; init="tcp://HOST:PORT" and "file:///PATH" need rank and
    n_ranks. `config` has the fields of wf_job_config, such as timeout_ms=60000."""
    _destroy = _job_leave

    def __init__(self, init: Optional[str] = "env://", **config: Any):
        self._make(_job_join, _JobConfig(**{"n_ranks": 1, **config, "init": init or None}))
        self.rank: int = _job_rank(self._at)
        self.n_ranks: int = _job_n_ranks(self._at)

    def __repr__(self):
        return f"<weft.Job: rank {self.rank} of {self.n_ranks}>"


def _as_text(of):
    return ",".join(f"{key}={value}" for key, value in of.items()) if isinstance(of, dict) else of


class Trainer(Owner):
    """A model with its weights and optimizer on devices, trained step by step.

        trainer = weft.Trainer(model, "batch=64,lr=0.05,momentum=0.9", plan="dp=2")
        for pixels, labels in batches:
            print(trainer.step(x=pixels, y=labels).loss)

    model   a weft.Model, or a function of its inputs that returns the loss, or a tuple of the loss and
            outputs (dicts by name; without, output0, output1, ...). help(weft.linear) and the like
    inputs  with a function: an example array for each of its parameters, for dtype and shape of a sample
    recipe  what the numbers depend on: batch, lr, optimizer, seed, ... (text or dict)
    plan    where the model runs: dp=2, pp=2, zero=3, ... (text or dict). It does not change the numbers.
    job     a weft.Job: the plan's ranks are its processes. None: they are threads of this process.
    config  fields of wf_trainer_config: devices="cpu:2", device_memory_bytes, keep_gradients=1, ...

    Inputs have names: the ready-made models read x (images or tokens) and y (labels or the next
    tokens). Dim 0 is the samples. An array is whatever has Python's buffer protocol or DLPack: NumPy's,
    PyTorch's on the CPU, array.array, weft.Array. It is read where it is if it is contiguous. Integers
    become int32 if they fit; nothing else is converted.

    Threads may share a trainer; their calls follow one another. In a job, all processes make the same
    calls. weft.Error is raised for what the library refuses.
    """
    _destroy = _destroy

    def __init__(self, model: Union[Model, Callable[..., Any]], recipe: Union[str, Dict[str, Any]] = "",
                 plan: Union[str, Dict[str, Any]] = "", job: Optional[Job] = None,
                 inputs: Optional[Dict[str, ArrayLike]] = None, **config: Any):
        if not isinstance(model, Model):
            if not callable(model):
                raise TypeError(f"a {type(model).__name__} is not a model: give a weft.Model or a function")
            model = FunctionModel(model, inputs or {})
        elif inputs:
            raise TypeError("inputs= is for a model that is a function; a weft.Model knows its inputs")
        self._plan, self._job, self._model = _as_text(plan), job, model  # the job and the model outlive the trainer
        self._lock = threading.RLock()
        parsed, planned = C.create_string_buffer(1 << 16), P()  # more than a wf_recipe takes
        context.check(_recipe_parse(context.at, text(_as_text(recipe)), parsed))
        context.check(_plan_parse(context.at, text(self._plan), C.byref(planned)))
        try:
            with self._errors():
                self._make(_create, model._at, parsed, planned, _TrainerConfig(**config, job=job._at if job else None))
        finally:
            _plan_destroy(planned)
        self._tensors = dict(self._list_tensors())

    def __repr__(self):
        if not self._own:
            return "<weft.Trainer: closed>"
        elements = sum(math.prod(shape) for _, shape in self._tensors.values())
        return (f"<weft.Trainer: {self._model.name}, {elements:,} weights in {len(self._tensors)} tensors, "
                f"plan \"{self._plan}\">")

    def _list_tensors(self):
        tensor, i = _TrainerTensor(), 0
        while _tensor_get(self._at, i, tensor):
            i += 1
            yield tensor.name.decode(), (DTYPES[tensor.dtype], tensor.shape.dims())

    @contextlib.contextmanager
    def _errors(self):
        """Raises the exception of the model function, or the library's error at the line of the model
        function that it refuses."""
        try:
            yield
        except Error as error:
            if not self._model.raised:
                raise
            raised = self._model.raised.pop()
            cause = Error(error.name, str(error)) if isinstance(raised, Refused) else raised
            raise cause.with_traceback(raised.__traceback__) from None

    def _call(self, function, *arguments):
        """Calls the library; one thread at a time."""
        self._at  # a fork's is refused before its lock, which may be held for ever
        with self._lock, self._errors():
            context.check(function(self._at, *arguments))

    def _run(self, function, arrays):
        fed, n_feeds, n_samples, memories = feeds(self._model._inputs, arrays)
        result = _StepResult()
        self._call(function, fed, n_feeds, n_samples, result)
        del memories
        return Result(*(getattr(result, name) for name in Result._fields))

    def step(self, **arrays: ArrayLike) -> Result:
        """Takes one step of the optimizer on a batch and returns its loss.

            result = trainer.step(x=pixels, y=labels)   # float32 [64, 1, 28, 28], integers [64]

        Forward, backward and update are one call: there is no zero_grad, backward or to(device). A
        batch may have fewer samples than the recipe's (the end of an epoch), not more.
        """
        return self._run(_step, arrays)

    def gradients(self, **arrays: ArrayLike) -> Result:
        """Computes the gradients of a step, which read(gradient=True) returns, and updates nothing:
        for two losses, or for an update rule of your own.

            trainer.gradients(x=pixels, y=labels)
            for name, weight in weights.items():          # arrays of the parameters' shapes
                slope = trainer.read(name, numpy.empty_like(weight), gradient=True)
                weight -= 0.1 * slope
                trainer.write(name, weight)
            trainer.count_step()
        """
        return self._run(_gradients, arrays)

    def eval(self, **arrays: ArrayLike) -> Result:
        """Returns loss and hits of a batch, and changes no weights: no dropout, batch norm by its
        running statistics."""
        return self._run(_eval, arrays)

    def forward(self, output: str, into: ArrayLike, **arrays: ArrayLike) -> ArrayLike:
        """Writes an output of the model into a contiguous float32 array, which it returns. The
        ready-made models have the output "logits". Labels may be left out.

            logits = trainer.forward("logits", torch.empty(64, 10), x=pixels)
        """
        fed, n_feeds, n_samples, memories = feeds(self._model._inputs, arrays)
        to = written(into)
        self._call(_forward, fed, n_feeds, n_samples, text(output), to.at, to.bytes)
        del memories
        return into

    def read(self, name: str, into: ArrayLike, gradient: bool = False) -> ArrayLike:
        """Copies a parameter or buffer into a contiguous array, which it returns; with gradient=True
        the gradient of the last gradients(), or of the last step with keep_gradients=1."""
        to = written(into, self._tensors.get(name, ("float32",))[0])
        self._call(_read_gradient if gradient else _read, text(name), to.at, to.bytes)
        return into

    def write(self, name: str, array: ArrayLike) -> None:
        """Replaces a parameter or buffer by the numbers of a contiguous array."""
        memory = Memory(array, name)
        dtype = self._tensors.get(name, ("float32",))[0]
        if memory.dtype != dtype:
            raise TypeError(f"{name}: elements are {memory.dtype}, and the tensor has {dtype}")
        self._call(_write, text(name), memory.at, memory.bytes)

    def count_step(self) -> None:
        """Counts a step made with gradients() and write(): random numbers, the learning-rate schedule
        and checkpoints go on with the next one."""
        self._call(_count_step)

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

    def use_average(self, used: bool = True) -> None:
        """Puts the moving average of the weights (the recipe's ema) in their place, for eval, forward,
        read and save; used=False puts the weights back, which step and save_state need."""
        self._call(_use_average, used)

    def save(self, path: Path) -> None:
        """Writes parameters and buffers to a safetensors file, or to an index and shards
        (shard_bytes=N). With save_async=1 it returns when they are copied."""
        self._call(_save, text(path))

    def load(self, path: Path) -> None:
        """Reads parameters and buffers by name from a safetensors file, an index of shards or a folder,
        such as torchvision and Hugging Face save."""
        self._call(_load_weights, text(path))

    def save_state(self, path: Path) -> None:
        """Writes all that load_state needs: parameters, buffers, optimizer state, number of steps."""
        self._call(_save_state, text(path), None, 0)

    def load_state(self, path: Path) -> None:
        """Goes on from a saved state, under any plan, with the bits of a run that never stopped."""
        self._call(_load_state, text(path))

    def save_wait(self) -> None:
        """Waits until the files of earlier saves are in place (save_async=1)."""
        self._call(_save_wait)

    def weights(self) -> Dict[str, Tuple[str, Tuple[int, ...], memoryview]]:
        """Returns name -> (dtype, shape, bytes) of every parameter and buffer.

            dtype, shape, data = trainer.weights()["fc.weight"]
            numpy.frombuffer(data, dtype).reshape(shape)
        """
        return {name: (dtype, shape, self._read_bytes(name)) for name, (dtype, shape) in self._tensors.items()}

    def _read_bytes(self, name):
        dtype, shape = self._tensors[name]
        data = bytearray(_dtype_bytes(DTYPES.index(dtype)) * math.prod(shape))
        self._call(_read, text(name), (C.c_char * len(data)).from_buffer(data), len(data))
        return memoryview(data)

    @property
    def n_steps(self) -> int:
        """Steps taken since the weights were initialised."""
        with self._lock:
            return _n_steps(self._at)

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of all parameters and buffers, the same under every plan of a recipe."""
        digest = C.create_string_buffer(65)
        self._call(_sha256, digest)
        return digest.value.decode()
