#!/usr/bin/env bash
# label: serial once
# Other people's programs, as they come: torchrun starts ranks, the safetensors package reads and writes weights, TensorBoard's own
# reader has the curves, NumPy and PyTorch the arrays. What is not installed is skipped by name. WEFT_PYTHON is a Python that has them.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
python=${WEFT_PYTHON:-/tmp/weft-peers/bin/python}
n_done=0
# has MODULE WHAT: whether Python has it.
has() {
    "$python" -c "import $1" 2>/dev/null && n_done=$((n_done + 1)) && return
    echo "skipped: $2 wants the Python package $1 (WEFT_PYTHON=$python)"
    return 1
}

mlp="train --model mlp --image 8 --data synthetic --threads 1 --batch 8 --lanes 2 --micro 2 --optimizer adam --steps 3"
one=$(report $mlp --out "$folder/run" | field weights_sha256)
[[ $one ]] || fail "a run of one process does not tell its weights"

if has torch.distributed.run torchrun; then
    two=$(timeout $patience "$python" -m torch.distributed.run --standalone --nproc-per-node 2 --no-python \
        "$WEFT" $mlp --plan dp=2 --quiet --json - 2>"$folder/said" | field weights_sha256)
    [[ $two == "$one" ]] || fail "torchrun: other bits than one process: $(cat "$folder/said")"
fi

if has safetensors.numpy "reading weights"; then
    "$python" - "$folder" <<'END' || fail "safetensors does not read what weft writes"
import sys, safetensors, safetensors.numpy, json
folder = sys.argv[1]
weights = safetensors.numpy.load_file(folder + "/run/model.safetensors")
with safetensors.safe_open(folder + "/run/model.safetensors", "np") as file:
    assert json.loads(file.metadata()["weft.model"])["model"] == "mlp", file.metadata()
assert len(safetensors.numpy.load_file(folder + "/run/state.safetensors")) > 2 * len(weights)
safetensors.numpy.save_file(weights, folder + "/again.safetensors")
safetensors.numpy.save_file({k: v.astype("float16") for k, v in weights.items()}, folder + "/half.safetensors")
END
    [[ $(report eval --model mlp --image 8 --data synthetic --threads 1 --init "$folder/again.safetensors" | field loss) == \
        $(report eval --model mlp --image 8 --data synthetic --threads 1 --init "$folder/run" | field loss) ]] || fail "weft does not read what safetensors writes"
    report eval --model mlp --image 8 --data synthetic --threads 1 --init "$folder/half.safetensors" >/dev/null
fi

if has tensorboard.backend.event_processing.event_accumulator TensorBoard; then
    "$python" - "$folder/run" <<'END' || fail "TensorBoard reads other curves than the log's"
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
curve = [(e.step, round(e.value, 5)) for e in events.Scalars("Loss/train")]
log = [json.loads(line) for line in open(sys.argv[1] + "/log.jsonl")]
assert curve == [(line["step"], round(line["loss"], 5)) for line in log if "loss" in line], curve
assert len(curve) == 3 and events.Scalars("Learning rate")
END
fi

if has torch "training on tensors in Python"; then
    PYTHONPATH=$WEFT_SOURCE/python WEFT_LIBRARY=$WEFT_BUILD/libweft.so "$python" - 2>"$folder/said" <<'END' || fail "tensors: $(tail -1 "$folder/said")"
import numpy, torch, weft
trainer = weft.Trainer(weft.Model("mlp", channels=3, height=4, width=4, n_classes=10), "batch=8,lr=0.1,threads=1")
x, y = torch.randn(8, 3, 4, 4), torch.randint(0, 10, (8,))
want = trainer.eval(x=x.numpy(), y=y.numpy().astype("int32"))
for pixels in x, x.to(memory_format=torch.channels_last), weft.Array(x), numpy.asfortranarray(x.numpy()):
    assert trainer.eval(x=pixels, y=y) == want, (pixels, want)
logits = trainer.forward("logits", torch.empty(8, 10), x=x)
assert abs(torch.nn.functional.cross_entropy(logits, y) - want.loss) < 1e-5, (logits, want)
try: trainer.step(x=x.double(), y=y)
except TypeError as error: assert "elements are float64" in str(error) and "x.to(torch.float32)" in str(error), error
else: raise AssertionError("float64 is taken")
assert torch.equal(torch.from_dlpack(weft.Array(x)), x)
END
    sed -n '/^```python$/,/^```$/{/^```/d;p};/^```text$/q' docs/python.md >"$folder/net.py"
    sed -n '/^```text$/,/^```$/{/^```text$/d;/^```$/q;p}' docs/python.md | sed 's/weights .*/weights/' >"$folder/want"
    (cd "$folder" && PYTHONPATH=$WEFT_SOURCE/python WEFT_LIBRARY=$WEFT_BUILD/libweft.so "$python" net.py >out 2>said) ||
        fail "the program of docs/python.md: $(tail -1 "$folder/said")"
    diff <(sed 's/weights .*/weights/' "$folder/out") "$folder/want" || fail "the program of docs/python.md prints something else"
    [[ $(sed -n 's/.*weights //p' "$folder/out" | sort -u | wc -l) == 1 ]] || fail "other bits under another plan: $(cat "$folder/out")"
fi

((n_done)) || exit 77
finish
