#!/usr/bin/env bash
# label: once
# Models as Python functions: the bits of a ready-made model, every op as the headers declare it, exceptions that get through.
source tests/python_helpers.bash

cat >"$folder/models.py" <<'PY'
import array, functools, os, re, traceback, weft
from helpers import batch, refused, same

def floats(*shape):
    n = 1
    for dim in shape: n *= dim
    return memoryview(array.array("f", [k * 37 % 101 / 50 - 1 for k in range(n)])).cast("B").cast("f", shape)

# The ready-made MLP, written again: the same weights, losses and outputs under every plan.
def mlp(x, y, n_hidden=256):
    x = weft.reshape(x, (x.shape[0], 16))
    x = weft.next_stage(weft.relu(weft.linear(x, "net1", n_hidden)), "second")
    logits = weft.linear(weft.relu(weft.linear(x, "net2", n_hidden)), "net3", 10)
    return weft.cross_entropy(logits, y), dict(logits=logits)

recipe = dict(batch=8, micro=2, lanes=2, lr=0.1, threads=1, seed=3)
def run(model, plan, **inputs):
    with weft.Trainer(model, recipe, plan, **inputs) as t:
        losses = [t.step(**batch(8, k)).loss for k in range(3)] + [t.step(**batch(4)).loss]
        return losses, t.weights_sha256, t.forward("logits", array.array("f", [0] * 80), x=batch(8)["x"])

want = run(weft.Model("mlp", channels=1, height=4, width=4, n_classes=10), "")
sized = functools.partial(mlp, n_hidden=256)  # a parameter that has a value is no input
same(run(sized, "", inputs=dict(y=array.array("B", [0]), x=batch(1)["x"])), want, "a function with a parameter")
labels = array.array("q", [0])  # an example: any number of samples, any integers
for plan in "", "dp=2", "pp=2":
    same(run(mlp, plan, inputs=dict(y=labels, x=batch(2)["x"])), want, f"a function under the plan '{plan}'")

# Layers, ops and operators, each at least once in models that train.
def pictures(x, y, target):
    with weft.scope("stem"):
        x = weft.conv2d(x, "conv", 4, 3, stride=1, pad=1)
        x = weft.relu(weft.batch_norm(x, "bn"))
    x = weft.max_pool(x, 2, 2) + weft.avg_pool(x, 2, 2)
    a, b = weft.split(x, 1, 2)
    x = weft.concat([weft.tanh(a), weft.sigmoid(b), weft.leaky_relu(a - b, 0.1), weft.gelu(a * b), 2 * weft.gelu_tanh(-a / 3)], 1)
    kernel = weft.parameter("kernel", (4, 10, 3, 3), "normal", 0.1)
    x = weft.cut(weft.conv2d_with(x, kernel, weft.parameter("kernel_bias", [4]), pad=2, dilation=2), "upper")
    x = weft.conv_transpose2d_with(x, weft.parameter("up", (4, 4, 2, 2), "uniform", 0.2), stride=2)
    same(x.shape[1:], (4, 4, 4), "a shape")
    x = weft.dropout(weft.global_avg_pool(x), "drop", 0.5)
    weight = weft.parameter("tied", (6, 4), "normal", 0.5)
    h = weft.linear_with(x, weight) @ weight
    h = weft.linear_in_out(weft.linear_in_out_with(weft.layer_norm(h, "ln"), weft.transpose(weight, 0, 1)), "out", 3, 0.1)
    picked = weft.reshape(weft.gather(h, y), (h.shape[0], 1))
    ce = weft.cross_entropy(h, y) + weft.smoothed_cross_entropy(h, y, 0.1)
    rest = weft.mse(picked, target) + weft.smooth_l1(weft.slice(h, 1, 1, 1), target) + weft.binary_cross_entropy(picked, target)
    means = weft.mean(weft.softmax(h), 1) + weft.sum(weft.log_softmax(h), 1)
    weft.output(weft.scale(h, 1), "named")
    return ce + rest + means, h, weft.relu(h)

def tokens(x, y):
    same(weft.is_training() in (True, False), True, "training")
    x = weft.embedding(x, "wte", 11, 6, 0.1) + weft.embedding_with(x, weft.parameter("table", (11, 6)))
    x = weft.lstm(x, "lstm", 0, 6)
    x = x + weft.self_attention(weft.linear(x, "qkv", 18), 2, causal=True)
    x = weft.layer_norm_with(x, weft.parameter("scale", [6], value=1), weft.parameter("shift", [6]))
    h = weft.rms_norm_with(weft.rms_norm(x, "rms"), weft.parameter("rms2", [6], value=1))
    qkv = weft.rotary(weft.linear(h, "q", 4), weft.linear(h, "k", 2), weft.linear(h, "v", 2), None, 2, 1, 100)
    qkv = qkv + weft.rotary_scaled(weft.linear(h, "q", 4), weft.linear(h, "k", 2), weft.linear(h, "v", 2), None, 2, 1, 100, 8, 1, 4, 16)
    x = x + weft.silu(weft.linear(weft.self_attention(qkv, 2, causal=True), "o", 6))
    return weft.cross_entropy(weft.linear(x, "head", 11), y)

given = dict(x=floats(4, 3, 4, 4), y=array.array("q", [0, 1, 2, 1]), target=floats(4, 1))
t = weft.Trainer(pictures, "batch=4,lr=0.1,threads=1", inputs=given)
assert t.step(**given).loss > t.step(**given).loss - 10
same([key for key in t.weights() if key.startswith("stem")][:2], ["stem.conv.weight", "stem.bn.weight"], "names in a scope")
out = {name: t.forward(name, array.array("f", [0] * 12), x=given["x"]).tolist() for name in ("output0", "output1", "named")}
same((out["output0"], [max(value, 0) for value in out["output0"]]), (out["named"], out["output1"]), "outputs")
ids = memoryview(array.array("q", [k % 11 for k in range(12)])).cast("B").cast("q", (4, 3))
t = weft.Trainer(tokens, "batch=4,lr=1,threads=1", inputs=dict(x=ids, y=ids))
losses = [t.step(x=ids, y=ids).loss for _ in range(4)]
assert losses[3] < losses[0], losses

# What goes wrong: the function's own exceptions, the library's errors, tensors of another call.
def trainer(function, **config):
    return weft.Trainer(function, "batch=8,lanes=1,threads=1", inputs=dict(batch(8)), **config)
class Own(Exception): pass
def raises(x, y): raise Own("of the function")
refused("Own", "of the function", lambda: trainer(raises))
def later(x, y):
    if x.shape[0] == 4: raise Own("of a smaller batch")
    return mlp(x, y)
small = trainer(later)
refused("Own", "of a smaller batch", lambda: small.step(**batch(4)))
same(small.step(**batch(8)).n_rows, 8, "a step after an exception")
kept = []
def keeps(x, y):
    kept.append(x)
    return mlp(x, y)
trainer(keeps)
refused("RuntimeError", "relu: x: this tensor belongs to a call of a model function that has ended", lambda: weft.relu(kept[0]))
refused("RuntimeError", "shape: this tensor", lambda: kept[0].shape)
refused("RuntimeError", "only be called inside a model function", lambda: weft.parameter("w", [1]))
refused("SHAPE", ", 3]", lambda: trainer(lambda x, y: weft.add(weft.linear(weft.reshape(x, (x.shape[0], 16)), "a", 3), weft.linear(weft.reshape(x, (x.shape[0], 16)), "b", 4))))
def wrong(x, y):
    x = weft.linear(x, "a", 3)
    x = weft.add(x, y)  # the library refuses this line
    return weft.cross_entropy(x, y[len(x.shape)])
try: trainer(wrong)
except weft.Error as error: assert "refuses this line" in "".join(traceback.format_exception(error)), traceback.format_exc()
else: raise AssertionError("a sum of other shapes")
by = weft.Trainer(lambda x, y: weft.loss_by(weft.cross_entropy(weft.linear(x, "a", 3), y), y), "batch=2,threads=1", inputs=dict(x=floats(1, 5), y=labels))
same(by.step(x=floats(2, 5), y=array.array("q", [0, -1])).n_rows, 1, "rows by labels")
refused("TypeError", "linear: x: a memoryview is not a weft.Tensor", lambda: trainer(lambda x, y: weft.linear(batch(8)["x"], "a", 3)))
refused("TypeError", "argument: 'n_out'", lambda: trainer(lambda x, y: weft.linear(x, "a")))
refused("OverflowError", f"linear: n_out: {1 << 64}", lambda: trainer(lambda x, y: weft.linear(x, "a", 1 << 64)))
refused("OverflowError", "transpose: dim_b", lambda: trainer(lambda x, y: weft.transpose(x, 0, 1 << 32)))
refused("TypeError", "<lambda> returns a NoneType; it has to return the loss", lambda: trainer(lambda x, y: None))
refused("TypeError", "<lambda> has the inputs x; inputs= has x, y", lambda: trainer(lambda x: x))
refused("TypeError", "inputs= has none", lambda: weft.Trainer(mlp, "batch=8"))
refused("TypeError", "x: elements are float64, which weft does not convert to float32", lambda: weft.Trainer(mlp, inputs=dict(x=array.array("d", [0]), y=labels)))
refused("TypeError", "inputs= is for a model that is a function", lambda: weft.Trainer(weft.Model("mlp"), inputs=batch(8)))
refused("TypeError", "a str is not a model", lambda: weft.Trainer("mlp"))
refused("ValueError", "x: samples of (4, 4, 1) are not (1, 4, 4)", lambda: small.step(x=floats(8, 4, 4, 1), y=batch(8)["y"]))
refused("INVALID_ARG", "", lambda: trainer(lambda x, y: weft.concat([], 0)))
refused("SHAPE", "into 0 equal parts", lambda: trainer(lambda x, y: (weft.split(x, 0, 0), mlp(x, y))[1]))

# Every function of the headers is here, with the types it has there.
by_hand = {"graph_create", "graph_destroy", "graph_fail", "graph_is_training", "tensor_shape", "input", "parameter", "scope",
           "scope_end", "concat", "split", "loss", "loss_by"}
kinds = {"wf_tensor": "t", "const char *": "s", "int64_t": "i", "int": "d", "float": "f", "double": "g", "wf_shape": "h",
         "wf_conv2d_shape": "c"}
declared = {}
for header in "graph.h", "nn.h":
    with open(os.path.join(os.environ["WEFT_SOURCE"], "include/weft", header)) as file:
        code = " ".join(re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S).split())
    for result, name, arguments in re.findall(r"WF_API (?:WF_NODISCARD )?(\w+) wf_(\w+)\( ?([^;]*?)\);", code):
        if name not in by_hand:
            types = [re.sub(r" ?\w+$", "", argument) if "*" not in argument else argument[:argument.index("*") + 1] for argument in arguments.split(", ")]
            declared[name] = "".join(kinds.get(of, f"({of})") for of in types), result == "wf_tensor"
here = {name: (of.replace("o", "t"), gives) for name, (of, gives) in weft._graph.OPS.items()}
assert len(declared) > 40, declared
same({name for name in declared if name not in here}, set(), "functions of the headers that python/weft/_ops.py lacks")
same(here, declared, "kinds of arguments")
assert all(getattr(weft, name).__doc__ for name in here)
same(set(weft._ops.__all__), set(here) | {"concat", "is_training", "loss", "loss_by", "parameter", "scope", "split"}, "__all__ of python/weft/_ops.py")
import builtins
assert not {name for name in weft.__all__ if hasattr(builtins, name)}, "names that `import *` would hide"
PY
python3 "$folder/models.py" 2>"$folder/said" || fail "models: $(tail -4 "$folder/said")"
finish
