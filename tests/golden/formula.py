"""The numbers of the golden networks: weights and inputs from integer arithmetic.

formula.h computes the same bits in C; README.md states the formula in words.
"""
import numpy as np

MASK = (1 << 64) - 1


def seed(name):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


def hashes(name, n):
    """n 64-bit numbers: splitmix64 started at seed(name)."""
    i = np.arange(1, n + 1, dtype=np.uint64)
    z = np.uint64(seed(name)) + i * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def uniform(name, shape, scale=1.0, base=0.0):
    """float32 base + scale * u, u uniform in [-1, 1) on a grid of 2^-23.

    Where base is not 0, scale must be a power of two: then the product is exact
    and a fused multiply-add gives the same bits.
    """
    u = (hashes(name, int(np.prod(shape))) >> np.uint64(40)).astype(np.int64) - (1 << 23)
    x = u.astype(np.float32) * np.float32(2.0**-23) * np.float32(scale)
    return (np.float32(base) + x).reshape(shape) if base else x.reshape(shape)


def integers(name, shape, n):
    """int64 in [0, n)."""
    h = hashes(name, int(np.prod(shape)))
    return ((h >> np.uint64(32)) % np.uint64(n)).astype(np.int64).reshape(shape)


def sample_indices(name, n, n_samples=64):
    """Which elements of a tensor of n are kept: all, or n_samples (some may repeat)."""
    if n <= n_samples:
        return np.arange(n)
    return integers("sample:" + name, n_samples, n)


def checksum(x):
    """Of the bits of a float32 array; tells at once whether two fills agree."""
    bits = np.ascontiguousarray(x, dtype=np.float32).reshape(-1).view(np.uint32).astype(np.uint64)
    return int((bits * (np.arange(bits.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1))).sum())


def parameter(name, shape):
    """Scale and base follow from the name and the shape; README.md says why these."""
    weight = name.endswith(".weight")
    if len(shape) == 4:  # convolution: variance 2 / fan_out
        return uniform(name, shape, np.sqrt(6.0 / (shape[0] * shape[2] * shape[3])))
    if name == "fc.weight":
        return uniform(name, shape, np.sqrt(6.0 / shape[0]))
    if "bn3." in name:  # the last norm of a residual block
        return uniform(name, shape, 2.0**-6, 0.1) if weight else uniform(name, shape, 0.5)
    if "bn" in name or "downsample.1." in name:
        return uniform(name, shape, 2.0**-4, 1.0) if weight else uniform(name, shape, 4.0)
    if "ln_" in name and weight:
        return uniform(name, shape, 2.0**-4, 1.0)
    if len(shape) == 1:  # every other bias
        return uniform(name, shape, 2.0**-6)
    return uniform(name, shape, 2.0**-2 if "c_attn" in name else 2.0**-3)
