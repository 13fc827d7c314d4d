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

The library is the one that WEFT_LIBRARY names, else build/libweft.so of the source tree, else an
installed one. This module is of the library's version: structures of another are refused.
"""
from ._arrays import Array
from ._library import Error
from ._library import lib as _lib
from ._model import Model, models
from ._trainer import Job, Result, Trainer

__all__ = ["Array", "Error", "Job", "Model", "Result", "Trainer", "models"]
