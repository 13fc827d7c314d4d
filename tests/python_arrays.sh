#!/usr/bin/env bash
# label: once
# Arrays in Python: buffers and DLPack tensors, strided and of other dtypes, give the bits of plain arrays or a sentence that names
# both dtypes.
source tests/python_helpers.bash

cat >"$folder/arrays.py" <<'PY'
import array, ctypes, weft
from helpers import batch, refused, same

class Tensor:
    """A tensor as PyTorch has it: no buffer, DLPack of its memory with strides (in elements), of version 1 or of before."""
    def __init__(self, values, shape, strides=None, code=2, is_old=False, device=1, is_read_only=False):
        self.values, self.is_old, self.device = values, is_old, device
        self.dims = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self.managed = weft._arrays._DLManaged(major=1, flags=is_read_only, tensor=weft._arrays._DLTensor(
            data=values.buffer_info()[0], device_type=device, ndim=len(shape), code=code, bits=8 * values.itemsize, lanes=1,
            shape=self.dims, strides=self.strides))
    def __dlpack_device__(self):
        return self.device, 0
    def __dlpack__(self, **version):
        if self.is_old and version: raise TypeError("unexpected keyword argument 'max_version'")
        at = ctypes.addressof(self.managed)
        return (weft._arrays._new_capsule(at + weft._arrays._DLManaged.tensor.offset, b"dltensor", None) if self.is_old else
                weft._arrays._new_capsule(at, b"dltensor_versioned", None))

model = weft.Model("mlp", channels=1, height=4, width=4, n_classes=10)
t = weft.Trainer(model, "batch=8,lr=0.1,threads=1,seed=3")
given = batch(8)
plain = array.array("f", given["x"].tobytes())
want = t.eval(**given).loss

def gives(x=given["x"], y=given["y"]):
    same(t.eval(x=x, y=y).loss, want, "the loss")

# Pixels, contiguous and strided.
for old in False, True:
    gives(x=Tensor(plain, (8, 1, 4, 4), is_old=old))
    gives(x=Tensor(plain, (8, 1, 4, 4), (16, 16, 4, 1), is_old=old))
gives(x=memoryview(plain).cast("B").cast("f", (8, 16)))  # flat images
twice = array.array("f", [value for value in plain for _ in range(2)])
gives(x=Tensor(twice, (8, 1, 4, 4), (32, 32, 8, 2)))
across = array.array("f", [plain[n * 16 + 4 * h + w] for n in range(8) for w in range(4) for h in range(4)])
gives(x=Tensor(across, (8, 1, 4, 4), (16, 16, 1, 4)))
gives(x=weft.Array(given["x"], "cpu:1"))
gives(x=weft.Array(Tensor(across, (8, 1, 4, 4), (16, 16, 1, 4))), y=weft.Array(given["y"]))

# Labels: every integer that int32 holds.
for form in "bhiqBHIQ":
    gives(y=array.array(form, given["y"]))
    gives(y=Tensor(array.array(form, given["y"]), (8,), code=form.isupper()))
gives(y=memoryview(array.array("q", [label for label in given["y"] for _ in range(2)]))[::2])
gives(y=weft.Array(array.array("q", given["y"])))
gives(y=(ctypes.c_int32 * 8)(*given["y"]))
ignored = [-100] + list(given["y"])[1:]
same(t.eval(x=given["x"], y=array.array("q", ignored)).n_rows, 7, "rows without the ignored label")
bits = array.array("B", [k % 2 for k in range(8)])
same(t.eval(x=given["x"], y=memoryview(bits).cast("?")).loss, t.eval(x=given["x"], y=array.array("i", bits)).loss, "labels of bool")
same(t.eval(x=given["x"], y=Tensor(bits, (8,), code=6)).loss, t.eval(x=given["x"], y=array.array("i", bits)).loss, "labels of bool by DLPack")
for wrong in 1 << 31, -(1 << 31) - 1, 1 << 40 | 3:
    refused("OverflowError", f"y: {wrong} does not fit into int32", lambda: gives(y=array.array("q", [wrong] + ignored[1:])))
refused("OverflowError", f"y: {1 << 32} does not fit into int32", lambda: gives(y=Tensor(array.array("Q", [1 << 32] * 8), (8,), code=1)))

# Nothing else is converted. The sentence names both dtypes.
for form, dtype in dict(d="float64", i="int32", q="int64", B="uint8").items():
    refused("TypeError", f"x: elements are {dtype}, which weft does not convert to float32", lambda: gives(x=array.array(form, [0] * 128)))
for form, dtype in dict(f="float32", d="float64").items():
    refused("TypeError", f"y: elements are {dtype}, which weft does not convert to int32", lambda: gives(y=array.array(form, [0] * 8)))
refused("TypeError", "x: elements are float16, which", lambda: gives(x=Tensor(array.array("H", [0] * 128), (8, 16))))
refused("TypeError", "x: elements are bfloat16, which", lambda: gives(x=Tensor(array.array("H", [0] * 128), (8, 16), code=4)))
refused("TypeError", "x: elements are complex64, which", lambda: gives(x=Tensor(array.array("Q", [0] * 128), (8, 16), code=5)))
refused("TypeError", "y: elements are big-endian", lambda: gives(y=(ctypes.c_int32.__ctype_be__ * 8)()))
refused("TypeError", "x: this tensor is on another device than the CPU, which weft reads: give x.cpu()", lambda: gives(x=Tensor(plain, (8, 16), device=2)))
refused("TypeError", "y: a list is not an array", lambda: gives(y=list(given["y"])))
refused("ValueError", "x: samples of (4, 4, 1) are not (1, 4, 4)", lambda: gives(x=given["x"].cast("B").cast("f", (8, 4, 4, 1))))
refused("ValueError", "arrays of [0, 8] samples", lambda: gives(x=Tensor(plain, (0, 1, 4, 4))))
named = Tensor(array.array("d", [0] * 128), (8, 16))
named.astype = None
refused("TypeError", 'by itself: x.astype("float32")', lambda: gives(x=named))
Tensor.__module__ = "torch"
refused("TypeError", "by itself: x.to(torch.float32)", lambda: gives(x=named))

# Results are written into tensors, too.
bias = array.array("f", [0] * 10)
t.read("net3.bias", Tensor(bias, (10,)))
same(bias, t.read("net3.bias", array.array("f", [0] * 10)), "a bias in a tensor")
assert any(bias), bias
refused("TypeError", "into: elements are int32, and float32 is written", lambda: t.read("net3.bias", array.array("i", [0] * 10)))
refused("TypeError", "into: elements are int32, and float32 is written", lambda: t.forward("logits", array.array("i", [0] * 80), **given))
refused("BufferError", "into: this array is not contiguous", lambda: t.read("net3.bias", memoryview(array.array("f", [0] * 20))[::2]))
refused("BufferError", "into: this array is read-only", lambda: t.read("net3.bias", bytes(40)))
refused("BufferError", "into: this array is read-only", lambda: t.read("net3.bias", Tensor(bias, (10,), is_read_only=True)))

# weft's own arrays.
a = weft.Array(array.array("f", [1, 2, 3]), "cpu:1")
b = weft.Array(a)
same((a.device, b.device, a.__dlpack_device__(), a.dtype, a.shape), ("cpu:1", "cpu:0", (1, 0), "float32", (3,)), "an array")
for k in range(100): b.__dlpack__(max_version=(1, 0))  # capsules that go at once
for k in range(100):  # and some that go while an exception is raised
    refused("TypeError", "", lambda: int(b.__dlpack__(max_version=(1, 0))))
refused("BufferError", "version 1 only", lambda: b.__dlpack__())
for kind, dtype in {"f": b"\2\40", "d": b"\2\100", "i": b"\0\40", "q": b"\0\100", "B": b"\1\10"}.items():
    capsule = weft.Array(array.array(kind, [1])).__dlpack__(max_version=(1, 0))
    at = weft._arrays._capsule_pointer(capsule, b"dltensor_versioned")  # a DLManagedTensorVersioned: its dtype's code and bits
    assert ctypes.string_at(at + 52, 2) == dtype, kind
refused("TypeError", "elements are int16; weft has arrays of float32, bfloat16", lambda: weft.Array(array.array("h", [1])))
refused("ValueError", "7 dims", lambda: weft.Array(Tensor(bias, (1,) * 7)))
same(weft.Array(Tensor(array.array("H", [0]), (1,), code=4)).dtype, "bfloat16", "a dtype")
try: import numpy
except ImportError: numpy = None
if numpy and numpy.lib.NumpyVersion(numpy.__version__) >= "2.1.0":
    n = numpy.from_dlpack(b); del b
    assert n.tolist() == [1, 2, 3] and not n.flags.writeable
    assert numpy.from_dlpack(weft.Array(numpy.arange(6, dtype="i8").reshape(2, 3).T)).tolist() == [[0, 3], [1, 4], [2, 5]]
PY
python3 "$folder/arrays.py" 2>"$folder/said" || fail "arrays: $(tail -4 "$folder/said")"
finish
