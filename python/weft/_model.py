"""Models: ready-made ones by name, and functions."""
import ctypes as C
import inspect
from typing import Callable, Dict, List

from ._arrays import DTYPES, ArrayLike, Input, Memory
from ._graph import Graph, Tensor, current
from ._library import Config, Owner, P, S, function, text
from ._ops import loss, output


class _ModelConfig(Config):
    _fields_ = [("struct_size", C.c_size_t), *((name, C.c_int64) for name in
                ("channels", "height", "width", "n_classes", "n_tokens")),
                ("loss", C.c_int), ("small_stem", C.c_int), ("dropout", C.c_double),
                *((name, C.c_int64) for name in ("n_layers", "hidden", "n_heads", "n_positions")),
                ("cached", C.c_int), ("label_smoothing", C.c_double), ("embedding", C.c_int64),
                ("tied", C.c_int), ("mixup", C.c_int), ("n_kv_heads", C.c_int64), ("ffn", C.c_int64),
                *((name, C.c_double) for name in
                ("rope_theta", "norm_eps", "rope_factor", "rope_low", "rope_high")),
                ("rope_positions", C.c_int64), ("qkv_bias", C.c_int), ("window", C.c_int64)]


class _ModelInfo(C.Structure):
    _fields_ = [("name", S), ("takes_tokens", C.c_int)]


_registry = function("wf_model_registry", C.c_int, result=C.POINTER(_ModelInfo))
_registry_find = function("wf_model_registry_find", S, result=C.POINTER(_ModelInfo))
_model_find = function("wf_model_find", P, S, C.POINTER(_ModelConfig), C.POINTER(P))
_MODEL_FUNCTION = C.CFUNCTYPE(None, P, P)
_model_create = function("wf_model_create", P, S, _MODEL_FUNCTION, P, C.c_size_t, C.POINTER(P))
_model_destroy = function("wf_model_destroy", P, result=None)


def models() -> List[str]:
    """Returns the names that Model takes."""
    names = []
    while _registry(len(names)):
        names.append(_registry(len(names)).contents.name.decode())
    return names


class Model(Owner):
    """A ready-made model, by a name of models(), with random weights that Trainer.load replaces.

        weft.Model("resnet18", channels=1, height=28, width=28, n_classes=10)
        weft.Model("gpt2-tiny", n_tokens=64, n_classes=50257)

    `sizes` are the fields of wf_model_config: channels, height, width, n_classes (also the size of a
    vocabulary), n_tokens, n_layers, hidden, n_heads, dropout, label_smoothing, loss=1 (mean squared
    error), ...
    """
    _destroy = _model_destroy

    def __init__(self, name: str, **sizes: float):
        self.name = name
        self._repr = ", ".join([repr(name), *(f"{key}={value!r}" for key, value in sizes.items())])
        sizes = {**dict(channels=3, height=224, width=224, n_classes=1000), **sizes}
        self._make(_model_find, text(name), _ModelConfig(**sizes))
        if _registry_find(text(name)).contents.takes_tokens:
            x = Input("int32", n_ids=sizes["n_classes"])
        else:
            x = Input("float32", tuple(sizes[key] for key in ("channels", "height", "width")))
        y, share = Input("float32" if sizes.get("loss") else "int32"), Input("float32")
        self._inputs = {"x": x, "y": y, "position": Input("int32"), "y_partner": y, "share": share,
                        "partner_share": share}
        self.raised = ()  # by a function

    def __repr__(self):
        return f"weft.Model({self._repr})"



def _input_like(example, name):
    """The input that an array is an example of: any integers are int32, and dim 0 is samples."""
    memory = Memory(example, name)
    if not memory.shape:
        raise ValueError(f"{name}: an example has samples in dim 0; this one has no dims")
    dtype = "int32" if "int" in memory.dtype or memory.dtype == "bool" else "float32"
    return Input(memory.converted(name, dtype).dtype, tuple(memory.shape[1:]))


class FunctionModel(Owner):
    """A model that is a Python function of its inputs. `examples`: an array for each of them."""
    _destroy = _model_destroy

    def __init__(self, function: Callable, examples: Dict[str, ArrayLike]):
        self.name = getattr(function, "__name__", type(function).__name__)
        parameters = inspect.signature(function).parameters
        names = [name for name, of in parameters.items() if name in examples or of.default is of.empty]
        if set(names) != set(examples):
            raise TypeError(f"{self.name} has the inputs {', '.join(names)}; inputs= has {', '.join(examples) or 'none'}")
        self._inputs = inputs = {name: _input_like(examples[name], name) for name in names}
        self.raised = raised = []  # what the function raised; C cannot pass it on

        def build(at, config, name=self.name):
            with Graph(at) as graph:
                try:
                    _finish(function(**{key: graph.input(key, DTYPES.index(of.dtype), of.sample)
                                        for key, of in inputs.items()}), name)
                except BaseException as error:
                    raised.append(error)
                    graph.fail(f"{type(error).__name__}: {error}")

        self._callback = _MODEL_FUNCTION(build)
        self._make(_model_create, text(self.name), self._callback, None, 0)

    def __repr__(self):
        return f"<a model function: {self.name}>"


def _finish(returned, name):
    """Declares the loss and the outputs that a model function has returned."""
    losses, *outputs = returned if isinstance(returned, tuple) else (returned,)
    if not current().has_loss:
        if not isinstance(losses, Tensor):
            raise TypeError(f"{name} returns a {type(losses).__name__}; it has to return the loss, or a tuple of the loss and outputs")
        loss(losses)
    named = {}
    for of in outputs:
        named.update(of if isinstance(of, dict) else {f"output{len(named)}": of})
    for key, value in named.items():
        output(value, key)
