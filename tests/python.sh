#!/usr/bin/env bash
# label: once
# python/weft: the same bits under every plan, state in and out, refusals as exceptions, ranks as processes.
source tests/python_helpers.bash

cat >"$folder/one.py" <<'PY'
import array, os, threading, weft
from helpers import batch, refused, same
D = os.environ["D"]

assert "resnet18" in weft.models() and "gpt2" in weft.models()
model = weft.Model("mlp", channels=1, height=4, width=4, n_classes=10)
recipe = dict(batch=8, micro=2, lanes=2, lr=0.1, threads=1, seed=3)
shas = []
for plan in "", "dp=2", "pp=2":
    with weft.Trainer(model, recipe, plan) as t:
        losses = [t.step(**batch(8, k)).loss for k in range(3)]
        trained = t.weights()
        shas.append((losses, t.weights_sha256, t.eval(**batch(8)).n_rows, t.n_steps))
same(shas[1:], shas[:1] * 2, "plans")
same(shas[0][2:], (8, 3), "rows and steps")

t = weft.Trainer(model, recipe, "dp=2", keep_gradients=1)
for k in range(2): t.step(**batch(8, k))
t.save_state(f"{D}/state"); t.save(f"{D}/model.safetensors")
again = weft.Trainer(model, {**recipe, "seed": 9})
assert again.weights_sha256 != t.weights_sha256
again.load(f"{D}/model.safetensors")
same(again.weights_sha256, t.weights_sha256, "weights that were loaded")
again.load_state(f"{D}/state")
same((again.step(**batch(8, 2)).loss, again.weights_sha256), (shas[0][0][2], shas[0][1]), "a run that goes on")
same(t.step(**batch(8, 2)).loss, shas[0][0][2], "the step itself")

bias = t.read("net3.bias", array.array("f", [0] * 10))
dtype, shape, data = t.weights()["net3.bias"]
same((dtype, shape, bytes(data)), ("float32", (10,), bias.tobytes()), "a weight")
slope = t.read("net3.bias", array.array("f", [0] * 10), gradient=True)
assert any(slope) and abs(sum(slope)) < 1e-5, slope  # those of a softmax have no sum

# An update of one's own: SGD, as the library's.
plain, own = weft.Trainer(model, recipe), weft.Trainer(model, recipe, "dp=2")
for k in range(2):
    plain.step(**batch(8, k))
    result = own.gradients(**batch(8, k))
    for name, (_, shape, data) in own.weights().items():
        weight, slope = array.array("f", bytes(data)), array.array("f", bytes(data))
        own.read(name, slope, gradient=True)
        rate = array.array("f", [result.lr])[0]
        own.write(name, array.array("f", [w - array.array("f", [rate * g])[0] for w, g in zip(weight, slope)]))
    own.count_step()
same((own.weights_sha256, own.n_steps), (plain.weights_sha256, 2), "an update of one's own")
refused("INVALID_ARG", "no parameter", lambda: own.write("none", array.array("f", [0])))
refused("SHAPE", "bytes", lambda: own.write("net3.bias", array.array("f", [0])))
refused("TypeError", "elements are", lambda: own.write("net3.bias", array.array("i", [0] * 10)))

refused("INVALID_ARG", "there is no model 'foo'", lambda: weft.Model("foo"))
refused("TypeError", "there is no 'foo'", lambda: weft.Model("mlp", foo=1))
refused("INVALID_ARG", "unknown key 'bach'", lambda: weft.Trainer(model, "bach=3"))
refused("INVALID_ARG", "plan", lambda: weft.Trainer(model, recipe, "dp=x"))
refused("ValueError", "the model has the inputs x, y", lambda: t.step())
refused("SHAPE", "input 'y' was not given", lambda: t.step(x=batch(8)["x"]))
refused("SHAPE", "8 samples take", lambda: t.step(x=array.array("f", [0] * 8), y=batch(8)["y"]))
refused("INVALID_ARG", "y[7] is 10; the model has 10 classes, 0 to 9", lambda: t.step(x=batch(8)["x"], y=array.array("i", [0] * 7 + [10])))
same(t.step(x=batch(8)["x"].cast("B").cast("f", (8, 16)), y=batch(8)["y"]).n_rows, 8, "flat images")
text = weft.Model("gpt2-tiny", n_tokens=4, n_classes=16)
refused("TypeError", "x: elements are float32", lambda: weft.Trainer(text, "batch=2,threads=1").step(
    **{name: memoryview(array.array("f", [0] * 8)).cast("B").cast("f", (2, 4)) for name in "xy"}))
# A token that the model does not know, a number that C would cut, a text that C would end, and a number for a text.
refused("ValueError", "x: token 16 is none of the 16", lambda: weft.Trainer(text, "batch=2,threads=1").step(
    **{name: memoryview(array.array("i", [3] * 7 + [16])).cast("B").cast("i", (2, 4)) for name in "xy"}))
refused("ValueError", "x: token -1 is none", lambda: weft.Trainer(text, "batch=2,threads=1").eval(
    **{name: memoryview(array.array("i", [-1] + [3] * 7)).cast("B").cast("i", (2, 4)) for name in "xy"}))
refused("OverflowError", "channels: 18446744073709551617", lambda: weft.Model("mlp", channels=1 << 64 | 1))
refused("OverflowError", "profile: 4294967297", lambda: weft.Trainer(model, recipe, profile=1 << 32 | 1))
refused("TypeError", "", lambda: weft.Trainer(model, recipe, devices=2))
refused("TypeError", "there is no 'struct_size'", lambda: weft.Model("mlp", struct_size=8))
refused("ValueError", "NUL", lambda: t.save(f"{D}/cut\0off"))
refused("ValueError", "NUL", lambda: weft.Trainer(model, "batch=8\0,lr=3"))
same(os.path.exists(f"{D}/cut"), False, "a file of half a name")
same(weft.Trainer(model, recipe, {"dp": 2}).step(**batch(8)).loss, shas[0][0][0], "a plan as a dict")
gone = weft.Model("mlp")
gone.close(); gone.close()
refused("ValueError", "this Model is closed", lambda: weft.Trainer(gone))
refused("ValueError", "the same number", lambda: t.step(x=batch(8)["x"], y=array.array("i", [0] * 4)))
refused("BufferError", "", lambda: t.read("net3.bias", bytes(40)))
refused("IO", "none", lambda: t.load(f"{D}/none"))
# One thread at a time, and never in a fork, which has none of the library's threads.
pair = [weft.Trainer(model, recipe) for _ in range(2)]
for k in range(40): pair[0].step(**batch(8))
threads = [threading.Thread(target=lambda: [pair[1].step(**batch(8)) for k in range(20)]) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
same(pair[1].weights_sha256, pair[0].weights_sha256, "two threads")
# What is closed while another thread steps ends between two steps; a fork waits for nobody's lock.
words = memoryview(array.array("i", [k % 200 for k in range(8 * 64)])).cast("B").cast("i", (8, 64))
busy = weft.Trainer(weft.Model("gpt2-tiny", n_tokens=64), recipe)
begun, ends, under_way, seen = threading.Event(), [], [], []
library_step, library_destroy = weft._trainer._step, weft.Trainer._destroy
def watched_step(*arguments):
    under_way.append(1)
    begun.set()
    try: return library_step(*arguments)
    finally: under_way.pop()
def watched_destroy(at):
    seen.append(len(under_way))
    library_destroy(at)
def step_on():
    try:
        while True: busy.step(x=words, y=words)
    except ValueError as error:
        ends.append(str(error))
weft._trainer._step, weft.Trainer._destroy = watched_step, staticmethod(watched_destroy)
threads = [threading.Thread(target=step_on) for _ in range(2)]
for thread in threads: thread.start()
begun.wait()
child = os.fork()
if not child:
    refused("RuntimeError", "its threads are not here", lambda: busy.step(x=words, y=words))
    busy.close()
    os._exit(0)
same(os.waitpid(child, 0)[1], 0, "a fork amid steps")
busy.close()
for thread in threads: thread.join()
same((seen, ends), ([0], ["this Trainer is closed"] * 2), "closed amid steps")
weft._trainer._step, weft.Trainer._destroy = library_step, library_destroy
# The average of the weights, and back.
average = weft.Trainer(model, {**recipe, "ema": 0.5})
for k in range(2): average.step(**batch(8))
before = average.weights_sha256
average.use_average()
assert average.weights_sha256 != before
refused("INVALID_ARG", "the weights are their average now", lambda: average.step(**batch(8)))
average.use_average(False)
same(average.weights_sha256, before, "the average, and back")
child = os.fork()
if not child:
    refused("RuntimeError", "its threads are not here", lambda: t.step(**batch(8)))
    t.close()
    os._exit(0)
same(os.waitpid(child, 0)[1], 0, "a fork")

t.close()
refused("ValueError", "this Trainer is closed", lambda: t.step(**batch(8)))
PY
python3 "$folder/one.py" 2>"$folder/said" || fail "one process: $(tail -1 "$folder/said")"

# ---- weights: the tensors of a file, whether sliced, buffers or hidden state, also of a trainer that saves shards in the background ----
cat >"$folder/weights.py" <<'PY'
import json, os, struct, weft
from helpers import same
path = os.environ["D"] + "/many.safetensors"
for name, sizes, config, chosen in [("resnet18", dict(height=32, width=32, n_classes=3), dict(shard_bytes=1000), {}),
                                    ("gpt2-tiny", dict(n_tokens=4, n_classes=16), dict(save_async=1), dict(slices=2)),
                                    ("lstm", dict(n_tokens=4, n_classes=16, hidden=4), dict(shard_bytes=100, save_async=1), {})]:
    many = weft.Model(name, **sizes)
    weft.Trainer(many, dict(batch=2, threads=1, **chosen)).save(path)
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0])); data = file.read()
    dtypes = dict(F32="float32", I64="int64")
    want = {key: (dtypes[at["dtype"]], tuple(at["shape"]), data[slice(*at["data_offsets"])]) for key, at in header.items() if key != "__metadata__"}
    got = weft.Trainer(many, dict(batch=2, threads=1, **chosen), **config).weights()
    same(sorted(got), sorted(want), f"names of {name}")
    differ = [key for key in want if (*got[key][:2], bytes(got[key][2])) != want[key]]
    same(differ, [], f"other tensors of {name}")
PY
python3 "$folder/weights.py" 2>"$folder/said" || fail "weights: $(tail -1 "$folder/said")"

# ---- a new text, a test's loss for the learning rate, saves in the background ----
cat >"$folder/hidden.py" <<'PY'
import array, os, weft
from helpers import same
tokens = memoryview(array.array("q", [k % 11 for k in range(16)])).cast("B").cast("q", (4, 4))
lstm = weft.Model("lstm", n_layers=1, hidden=4, n_classes=11, n_tokens=4)
t = weft.Trainer(lstm, "batch=4,lr=0,threads=1")
for run, other in [(t.eval, "steps"), (t.step, "evals")]:
    t.reset_hidden()
    first, second = (run(x=tokens, y=tokens).loss for _ in range(2))
    assert first != second, f"{run}: no hidden state"
    t.reset_hidden()
    same(run(x=tokens, y=tokens).loss, first, "the loss after reset_hidden")
    t.reset_hidden(**{"evals" if other == "steps" else "steps": False})
    same(run(x=tokens, y=tokens).loss, second, f"the loss after reset_hidden of {other}")
plateau = weft.Trainer(lstm, "batch=4,lr=1,lr_schedule=plateau,lr_gamma=0.5,lr_patience=0,threads=1")
lrs = []
for loss in 3, 4:
    plateau.evaluated(loss)
    lrs.append(plateau.step(x=tokens, y=tokens).lr)
same(lrs, [1, 0.5], "learning rates of a plateau")
path = os.environ["D"] + "/later.safetensors"
later = weft.Trainer(lstm, "batch=4,threads=1", save_async=1)
later.save(path)
later.save_wait()
plateau.load(path)
same(plateau.weights_sha256, later.weights_sha256, "weights saved in the background")
PY
python3 "$folder/hidden.py" 2>"$folder/said" || fail "a new text: $(tail -1 "$folder/said")"

# ---- version, repr, help, annotations ----
cat >"$folder/about.py" <<'PY'
import array, inspect, os, pydoc, re, typing, weft
from helpers import same
header = open(os.path.join(os.environ["WEFT_SOURCE"], "include/weft/weft.h")).read()
same(weft.__version__, re.search('WEFT_VERSION +"(.*)"', header)[1], "the version")
assert os.path.exists(os.path.join(os.path.dirname(weft.__file__), "py.typed"))
model = weft.Model("mlp", channels=1, height=4, width=4, n_classes=10)
same(repr(model), "weft.Model('mlp', channels=1, height=4, width=4, n_classes=10)", "a model")
trainer = weft.Trainer(model, "batch=8,threads=1", dict(dp=2))
same(repr(trainer), '<weft.Trainer: mlp, 72,714 weights in 6 tensors, plan "dp=2">', "a trainer")
trainer.close()
same(repr(trainer), "<weft.Trainer: closed>", "a closed trainer")
same(repr(weft.Array(array.array("f", [1, 2]), "cpu:1")), "<weft.Array: float32 [2] on cpu:1>", "an array")
for name in set(weft.__all__) - {"ArrayLike"}:
    of = getattr(weft, name)
    if inspect.isclass(of) or inspect.isfunction(of):
        same((of.__module__, bool(of.__doc__)), ("weft", True), name)
    for key, member in vars(of).items() if inspect.isclass(of) and name != "Error" else ():
        call = member.fget if isinstance(member, property) else member
        if inspect.isfunction(call) and (key == "__init__" or key[0] != "_") and (key, name) != ("close", "Array"):
            assert key == "__init__" or call.__doc__, f"{name}.{key} has no docstring"
            unknown = set(inspect.signature(call).parameters) - set(typing.get_type_hints(call)) - {"self"}
            assert not unknown, f"{name}.{key}: {unknown} without annotations"
assert "returns its loss" in pydoc.render_doc(weft.Trainer.step), pydoc.render_doc(weft.Trainer.step)
PY
python3 "$folder/about.py" 2>"$folder/said" || fail "about: $(tail -1 "$folder/said")"
said=$(WEFT_LIBRARY=/nowhere.so python3 -c "import weft" 2>&1 | tail -1)
[[ $said == "ImportError: weft's library cannot be loaded: /nowhere.so: "*"set WEFT_LIBRARY to its path" ]] || fail "no library: $said"

# ---- ranks are processes: each the same ----
cat >"$folder/two.py" <<'PY'
import weft, one, helpers
job = weft.Job()
t = weft.Trainer(one.model, one.recipe, "dp=2", job=job)
assert job.n_ranks == 2
for k in range(3): loss = t.step(**helpers.batch(8, k)).loss
helpers.same((loss, t.weights_sha256), (one.shas[0][0][2], one.shas[0][1]), "processes")
helpers.same(t.weights(), one.trained, "weights in a job")
t.close(); job.close()
print("well", job.rank)
PY
(cd "$folder" && "$WEFT" run -n 2 -- env D="$folder" python3 -c "
import os; D = os.environ['D'] = os.path.join(os.environ['D'], 'r' + os.environ['RANK']); os.mkdir(D)
import sys; sys.path.insert(0, '.'); import two" >"$folder/out" 2>"$folder/said") || fail "two processes: $(tail -2 "$folder/said")"
[[ $(sort "$folder/out") == $'well 0\nwell 1' ]] || fail "two processes say: $(cat "$folder/out")"

finish
