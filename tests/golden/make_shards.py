"""Writes shards/: three files of the safetensors library, in F16, BF16 and F64, and their index,
as transformers lays them out. Needs `pip install safetensors==0.5.3`, no more.

Values are those that conversions may get wrong: the least and largest of the type, subnormals,
ties, signed zeros. values.bin has what they are as float32, in the order of their names.
"""
import json, os, struct
from safetensors import serialize_file

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shards")
os.makedirs(here, exist_ok=True)

halves = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC01, 0x7BFF, 0xFBFF, 0x3555, 0x1234]
bfloats = [0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x3F80, 0xBF81, 0x7F7F, 0xFF7F, 0x3EAB, 0x4049, 0x1234]
doubles = [0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 1 + 2**-24, 1 + 3 * 2**-24, 1 + 2**-24 + 2**-50, 2.0**-149, 3 * 2.0**-150, 3.4028234663852886e38]

def pack(kind, values):
    return struct.pack(f"<{len(values)}{kind}", *values)

tensors = {  # name: file, type, bytes, floats
    "bfloats": (2, "bfloat16", pack("H", bfloats), [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bfloats]),
    "doubles": (3, "float64", pack("d", doubles), doubles),  # struct rounds to nearest, ties to even
    "halves": (1, "float16", pack("H", halves), [struct.unpack("<e", struct.pack("<H", h))[0] for h in halves]),
}
files = {}
for name, (number, dtype, data, _) in tensors.items():
    files[name] = f"model-{number:05d}-of-00003.safetensors"
    serialize_file({name: {"dtype": dtype, "shape": [3, 4], "data": data}}, os.path.join(here, files[name]), {"format": "pt"})
index = {"metadata": {"total_size": sum(len(t[2]) for t in tensors.values())}, "weight_map": files}
with open(os.path.join(here, "model.safetensors.index.json"), "w") as f:
    f.write(json.dumps(index, indent=2, sort_keys=True) + "\n")  # as transformers writes it
with open(os.path.join(here, "values.bin"), "wb") as f:
    for name in sorted(tensors):
        f.write(pack("f", tensors[name][3]))
