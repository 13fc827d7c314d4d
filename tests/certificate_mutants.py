#!/usr/bin/env python3
"""Breaks certificates: scripts/check-certificate must refuse each mutant.

    tests/certificate_mutants.py SEED N CERTIFICATE...

Every kind of breakage is tried N times on each certificate. Each makes a wrong program: none moves
what only looks wrong, as two loads in another order.
"""
import collections
import copy
import importlib.machinery
import importlib.util
import json
import random
import sys

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("checker", "scripts/check-certificate")
checker = importlib.util.module_from_spec(importlib.util.spec_from_loader("checker", loader))
loader.exec_module(checker)

KIND, MICRO, OF, FLAG, OTHERS, REFERENCES, DEPENDS = range(7)
B_RANK, B_SPACE, B_OFFSET, B_BYTES, B_KIND, B_ID, B_MICRO, B_BEGIN, B_STATE = range(9)


def kind(c, r):
    return c["blocks"][r[0]][B_KIND]


def is_part(i):
    return i[KIND] in checker.PARTS


def streams(c):
    return [stream for of_rank in c["streams"] for stream in of_rank]


def any_of(c, test):
    found = [i for i in c["instructions"] if test(i)]
    return random.choice(found) if found else None


def adds(c, i):
    return any(kind(c, r) in ("grad", "tied") for r in i[REFERENCES])


# ---- breakages: each returns what it has broken, or None ----
def other_microbatch(c):
    i = any_of(c, lambda i: is_part(i) or i[KIND] == "load")
    i[MICRO] = (i[MICRO] + 1) % c["microbatches"]
    return i[KIND]


def missing(c):
    k = random.randrange(len(c["instructions"]))
    what = c["instructions"][k][KIND]
    del c["instructions"][k]
    for s in streams(c):
        s[:] = [x - (x > k) for x in s if x != k]
    for i in c["instructions"]:
        i[DEPENDS] = [d - (d > k) for d in i[DEPENDS] if d != k]
    return what


def doubled(c):
    i = any_of(c, lambda i: i[KIND] == "update" or (i[KIND] in ("weight", "backward+weight")
                                                        and not i[FLAG] and adds(c, i)))
    k, n = c["instructions"].index(i), len(c["instructions"])
    c["instructions"].append(copy.deepcopy(i))
    for s in streams(c):
        if k in s:
            s.insert(s.index(k) + 1, n)
    return i[KIND]


def assigned(c):
    i = any_of(c, lambda i: i[KIND] in ("weight", "backward+weight") and adds(c, i))
    i[FLAG] = 1 - i[FLAG]
    return i[KIND]


def swapped(c):
    """Two neighbours of a stream, of which the second reads what the first writes."""
    def reads_it(x, y):
        wrote = [r[0] for r in c["instructions"][x][REFERENCES]
                 if r[3] & 2 and kind(c, r) not in ("workspace", "staging")]
        return any(r[0] in wrote and r[3] & 1 for r in c["instructions"][y][REFERENCES])
    found = [(s, k) for s in streams(c) for k in range(len(s) - 1) if reads_it(s[k], s[k + 1])]
    s, k = random.choice(found)
    s[k], s[k + 1] = s[k + 1], s[k]
    return c["instructions"][s[k]][KIND]


def unordered(c):
    """A rank whose streams do not wait for each other."""
    rank = random.randrange(len(c["streams"]))
    for k in sum(c["streams"][rank], []):
        c["instructions"][k][DEPENDS] = []
    return f"rank {rank}"


def touched(c, i):
    """Rank, space, first and last byte, and access of each reference."""
    for r in c["instructions"][i][REFERENCES]:
        b = c["blocks"][r[0]]
        if r[2]:
            yield b[B_RANK], b[B_SPACE], b[B_OFFSET] + r[1], b[B_OFFSET] + r[1] + r[2], r[3]


def conflict(c, x, y):
    return any(a[:2] == b[:2] and a[2] < b[3] and b[2] < a[3] and (a[4] | b[4]) & 2
               for a in touched(c, x) for b in touched(c, y))


def race(c):
    """Two streams of a rank use the same bytes, and one no longer waits for the other."""
    found = [(i, d) for i, now in enumerate(c["instructions"]) for d in now[DEPENDS] if conflict(c, i, d)]
    random.shuffle(found)
    for i, d in found[:20]:
        c["instructions"][i][DEPENDS].remove(d)
        order = checker.Order(checker.Certificate(copy.deepcopy(c)))
        stream = next(k for k, s in enumerate(streams(c)) if d in s)
        if order.clocks[i][stream] <= streams(c)[stream].index(d):
            return f"{c['instructions'][i][KIND]} after {c['instructions'][d][KIND]}"
        c["instructions"][i][DEPENDS].append(d)
    return None


def other_input(c):
    i = any_of(c, lambda i: i[KIND] == "load")
    i[OF] += 1
    return "load"


def less_norm(c):
    i = any_of(c, lambda i: i[KIND] == "total_norm")
    if not i:
        return None
    r = random.choice([r for r in i[REFERENCES] if kind(c, r) == "norm" and r[2] > 8])
    r[1], r[2] = r[1] + 8, r[2] - 8
    return "total_norm"


def other_slice(c):
    """Two ranks keep optimizer state of each other's parameters."""
    state = [b for b in c["blocks"] if b[B_KIND] == "state" and b[B_STATE]]
    found = [(x, y) for x in state for y in state if x[B_ID] == y[B_ID] and x[B_BEGIN] < y[B_BEGIN]]
    if not found:
        return None
    x, y = random.choice(found)
    x[B_BEGIN], y[B_BEGIN] = y[B_BEGIN], x[B_BEGIN]
    return "state"


def over_state(c):
    """Not over parameters: those that are gathered after the update may be overwritten before."""
    found = [b for b in c["blocks"] if b[B_STATE] and b[B_BYTES] and b[B_KIND] != "param"]
    if not found:
        return None
    state = random.choice(found)
    used = {r[0] for i in c["instructions"] for r in i[REFERENCES] if r[2] and r[3] & 2}
    found = [c["blocks"][k] for k in used if c["blocks"][k][:2] == state[:2]
             and not c["blocks"][k][B_STATE] and c["blocks"][k][B_BYTES]]
    b = random.choice(found) if found else None
    if not b or state[B_OFFSET] + b[B_BYTES] > c["peaks"][b[B_RANK]][b[B_SPACE]]:
        return None
    b[B_OFFSET] = state[B_OFFSET]
    return b[B_KIND]


def other_block(c):
    i = any_of(c, lambda i: any(r[2] and kind(c, r) not in ("workspace", "staging") for r in i[REFERENCES]))
    r = random.choice([r for r in i[REFERENCES] if r[2] and kind(c, r) not in ("workspace", "staging")])
    b = c["blocks"][r[0]]
    found = [k for k, x in enumerate(c["blocks"]) if x[B_RANK] == b[B_RANK] and x[B_BYTES] == b[B_BYTES]
             and (x[B_KIND], x[B_ID], x[B_MICRO]) != (b[B_KIND], b[B_ID], b[B_MICRO])]
    if not found:
        return None
    r[0] = random.choice(found)
    return i[KIND]


def fewer_bytes(c):
    i = any_of(c, lambda i: any(r[2] > 64 and kind(c, r) != "norm" for r in i[REFERENCES])
               and i[KIND] != "norm")
    r = random.choice([r for r in i[REFERENCES] if r[2] > 64])
    if kind(c, r) in ("staging", "norm"):
        return None
    r[2] -= 64
    return f"{i[KIND]} {kind(c, r)}"


def other_part(c):
    i, other = any_of(c, is_part), any_of(c, is_part)
    i[OF] = other[OF]
    return i[KIND]


def other_kind(c):
    i, other = random.choice(c["instructions"]), random.choice(c["instructions"])
    i[KIND] = other[KIND]
    return i[KIND]


def no_sum(c):
    i = any_of(c, lambda i: i[KIND] == "change" and i[FLAG])
    if i:
        for x in c["instructions"]:
            x[FLAG] *= x[OTHERS] != i[OTHERS]
    return i and i[KIND]


def lower_peak(c):
    p = random.choice([p for p in c["peaks"] if p[0]])
    p[0] -= 1
    return "peak"


def fewer_spaces(c):
    random.choice(c["peaks"]).pop()
    return "peak of a space"


def other_half(c):
    """Sums of slices are folded without the gap after the last of them."""
    ties = [tie for unit in c["units"] for tie in unit[2]]
    found = []
    for i in c["instructions"]:
        into, *rest = i[REFERENCES] or [None]
        if i[KIND] == "fold" and into[0] == rest[0][0]:
            end = max(begin + n for _, uses, begin, n in ties if uses[0] == c["blocks"][into[0]][B_ID])
            found += [(into, rest[0], end)] if end < into[2] else []
    if not found:
        return None
    into, other, end = random.choice(found)
    into[2] = other[1] = other[2] = end
    return "fold"


def other_size(c):
    """A part of a unit has one size of each tensor, and two of its workspace."""
    slot = random.choice([slot for s in c["segments"] for slot in s[4]])
    slot[4].append(64)
    return slot[0]


def other_sum(c):
    """All that a part of a unit sums is read and written."""
    slot = random.choice([slot for s in c["segments"] for slot in s[4] if slot[0] in checker.SUMS])
    slot[2] += 64
    return slot[0]


def unused_part(c):
    s = copy.deepcopy(random.choice(c["segments"]))
    s[random.choice((0, 3))] += len(c["units"])
    c["segments"].append(s)
    return s[1]


def part_twice(c):
    s = copy.deepcopy(random.choice(c["segments"]))
    c["segments"].insert(0, s)
    s[4].pop()
    return s[1]


def unused_variant(c):
    c["variants"].append(c["microbatches"])
    return "variant"


def other_staging(c):
    """Bytes that a collective stages are another unit's on one rank."""
    found = [b for b in c["blocks"] if b[B_KIND] == "staging"]
    if not found:
        return None
    random.choice(found)[B_ID] += 1
    return "staging"


def staging_over_state(c):
    """Bytes that a collective stages are written over parameters or their optimizer state."""
    found = [(x, y) for x in c["blocks"] for y in c["blocks"] if x[B_KIND] == "staging" and y[B_STATE]
             and x[B_RANK] == y[B_RANK] and x[B_SPACE] == y[B_SPACE] and x[B_BYTES] and y[B_BYTES]]
    if not found:
        return None
    x, y = random.choice(found)
    x[B_OFFSET] = y[B_OFFSET]
    for rank, peaks in enumerate(c["peaks"]):
        for space in range(len(peaks)):
            peaks[space] = max((b[B_OFFSET] + b[B_BYTES] for b in c["blocks"]
                                if b[:2] == [rank, space]), default=0)
    return y[B_KIND]


def less_staging(c):
    """No collective stages as much as the block has room for."""
    found = [k for k, b in enumerate(c["blocks"]) if b[B_KIND] == "staging" and b[B_BYTES] > 64]
    k = random.choice(found) if found else None
    for r in sum((i[REFERENCES] for i in c["instructions"]), []):
        r[2] -= 64 * (r[0] == k and r[2] > 64)
    return k and "staging"


def unstaged(c):
    """One rank stages bytes without writing them."""
    found = [r for i in c["instructions"] for r in i[REFERENCES] if kind(c, r) == "staging" and r[2]]
    if not found:
        return None
    random.choice(found)[3] = random.choice((0, 1, 3))
    return "staging"


def no_state(c):
    b = random.choice([b for b in c["blocks"] if b[B_STATE] and b[B_BYTES]])
    b[B_STATE] = 0
    return b[B_KIND]


BREAKAGES = (race, other_input, less_norm, other_slice, other_microbatch, missing, doubled,
             assigned, swapped, unordered, over_state, other_block,
             fewer_bytes, other_part, other_kind, no_sum, lower_peak, fewer_spaces, other_half,
             other_size, other_sum, unused_part, part_twice, unused_variant, other_staging,
             staging_over_state, less_staging, unstaged, no_state)


# With another value, a program may still be correct.
FREE = (("free_sums",), ("blocks", B_OFFSET), ("blocks", B_BYTES), ("instructions", DEPENDS))


def with_other(c, field, has_other_type):
    """Replaces a number or a text in the field, or returns False if it has none."""
    at, key, path = c, field, [field]
    while isinstance(at[key], list):
        if not at[key]:
            return False
        at, key = at[key], random.randrange(len(at[key]))
        path.append(key)
    is_number = isinstance(at[key], int)
    if has_other_type:
        at[key] = random.choice([True, 1.0, None] if is_number else [1, None])
    else:
        at[key] = at[key] + random.choice([-1, 1]) if is_number else "other"
    return has_other_type or (field, *path[2:3]) not in FREE


def main():
    random.seed(int(sys.argv[1]))
    tried, wrong = collections.Counter(), 0
    for path in sys.argv[3:]:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        checker.prove(text)
        for breakage in BREAKAGES:
            for _ in range(int(sys.argv[2])):
                c = json.loads(text)
                what = breakage(c)
                if not what or c == json.loads(text):
                    continue
                tried[breakage.__name__] += 1
                try:
                    checker.prove(json.dumps(c))
                except checker.Refused:
                    continue
                wrong += 1
                print(f"FAILED: {path} is proved with this breakage: {breakage.__name__} {what}")
        for field in json.loads(text):
            for k in range(2 * int(sys.argv[2])):
                c = json.loads(text)
                if not with_other(c, field, k % 2):
                    continue
                try:
                    checker.prove(json.dumps(c))
                except (checker.Refused, *checker.MALFORMED):
                    continue
                wrong += 1
                print(f"FAILED: {path} is proved with another {'type' if k % 2 else 'value'} in {field}")
    idle = [b.__name__ for b in BREAKAGES if not tried[b.__name__]]
    if idle:
        print(f"FAILED: never tried: {idle}")
    print(f"{sum(tried.values())} mutants, {wrong} proved")
    return 1 if wrong or idle else 0


if __name__ == "__main__":
    sys.exit(main())
