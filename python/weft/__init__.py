"""weft from Python: one model trained on many devices, with the same bits under every plan.

    import weft
    model = weft.Model("resnet18", channels=1, height=28, width=28, n_classes=10)
    trainer = weft.Trainer(model, "batch=64,lr=0.05,momentum=0.9,threads=1", plan="dp=2")
    result = trainer.step(x=pixels, y=labels)      # float32 [64, 1, 28, 28], integers [64]
    print(result.loss, result.accuracy)
    trainer.save("model.safetensors")

A model of one's own is a function, made of the layers and ops of weft/nn.h and weft/graph.h:

    def net(x, y):
        hidden = weft.relu(weft.linear(x, "net1", 10))
        return weft.cross_entropy(weft.linear(hidden, "net2", 5), y)

    trainer = weft.Trainer(net, "batch=20,lr=0.01", plan="dp=2", inputs=dict(x=pixels, y=labels))

Arrays are NumPy's, PyTorch's on the CPU, array.array or weft.Array. Recipes and plans are the texts of
`weft train` and `weft plan`. weft.Error is raised for what the library refuses, with its sentence.

The package calls libweft.so through ctypes and needs nothing else. Both are of one version: the library
refuses structures of another size.
"""
import builtins

from . import _ops
from ._arrays import Array, ArrayLike
from ._graph import Tensor
from ._library import Error, __version__
from ._library import lib as _lib
from ._model import Model, models
from ._ops import *  # noqa: F401,F403
from ._trainer import Job, Result, Trainer

# `from weft import *` leaves Python's own sum and slice alone.
__all__ = ["Array", "ArrayLike", "Error", "Job", "Model", "Result", "Tensor", "Trainer", "__version__", "models",
           *(name for name in _ops.__all__ if not hasattr(builtins, name))]

for _public in Array, Error, Job, Model, Result, Tensor, Trainer, models, *(getattr(_ops, name) for name in _ops.__all__):
    _public.__module__ = __name__  # as programs write it, in error messages and help
