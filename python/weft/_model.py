"""Ready-made models, by name."""
import ctypes as C
from typing import List

from ._arrays import Input
from ._library import Config, Owner, P, S, function, text


class _ModelConfig(Config):
    _fields_ = [("struct_size", C.c_size_t), *((name, C.c_int64) for name in
                ("channels", "height", "width", "n_classes", "n_tokens")),
                ("loss", C.c_int), ("small_stem", C.c_int), ("dropout", C.c_double),
                *((name, C.c_int64) for name in ("n_layers", "hidden", "n_heads", "n_positions")),
                ("cached", C.c_int), ("label_smoothing", C.c_double), ("embedding", C.c_int64),
                ("tied", C.c_int), ("mixup", C.c_int)]


class _ModelInfo(C.Structure):
    _fields_ = [("name", S), ("takes_tokens", C.c_int)]


_registry = function("wf_model_registry", C.c_int, result=C.POINTER(_ModelInfo))
_registry_find = function("wf_model_registry_find", S, result=C.POINTER(_ModelInfo))
_model_find = function("wf_model_find", P, S, C.POINTER(_ModelConfig), C.POINTER(P))
model_destroy = function("wf_model_destroy", P, result=None)


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
    _destroy = model_destroy

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

    def __repr__(self):
        return f"weft.Model({self._repr})"
