"""What fsx does, the exerciser of file systems: fsx.py FILE SEED OPERATIONS. Random reads, writes, the same through a map,
truncations, holes, zeros, syncs and reopenings; whatever is read must be what was written. Every 50 operations it says how
many it did.
"""

import ctypes
import mmap
import os
import random
import sys

path, seed, operations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
LONGEST = 1 << 18
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
made = random.Random(seed)
content = bytearray()
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def check(at, found):
    if found != content[at : at + len(found)]:
        sys.exit("other bytes at %d, %d of them" % (at, len(found)))


def place():
    at = made.randrange(LONGEST)
    return at, min(LONGEST - at, made.randrange(1, 1 << made.randrange(6, 17)))


def put(at, data):
    content.extend(bytes(max(0, at + len(data) - len(content))))
    content[at : at + len(data)] = data


def fallocate(mode, at, count):
    if libc.fallocate(file, mode, at, count) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def step(kind):
    global file
    at, count = place()
    inside = range(min(at, len(content)), min(at + count, len(content)))
    if kind == "write":
        data = made.randbytes(count) if made.random() < 0.6 else made.randbytes(1) * count
        assert os.pwrite(file, data, at) == count
        put(at, data)
    elif kind == "read":
        found = os.pread(file, count, at)
        assert len(found) == len(inside), (len(found), inside)
        check(inside.start, found)
    elif kind == "truncate":
        os.ftruncate(file, at)
        del content[at:]
        content.extend(bytes(at - len(content)))
    elif kind in ("punch", "zero"):
        mode = KEEP_SIZE | (PUNCH_HOLE if kind == "punch" else ZERO_RANGE)
        fallocate(mode, at, count)
        content[inside.start : inside.stop] = bytes(len(inside))
    elif kind in ("map read", "map write") and len(inside) > 0:
        with mmap.mmap(file, len(content)) as mapped:
            if kind == "map write":
                data = made.randbytes(len(inside))
                mapped[inside.start : inside.stop] = data
                put(inside.start, data)
            check(inside.start, mapped[inside.start : inside.stop])
    elif kind == "sync":
        os.fsync(file)
    elif kind == "reopen":
        os.close(file)
        file = os.open(path, os.O_RDWR)


KINDS = {"write": 30, "read": 20, "truncate": 6, "punch": 8, "zero": 6, "map read": 8, "map write": 8, "sync": 4, "reopen": 3}
number = 0
while number < operations:
    number += 1
    step(made.choices(list(KINDS), list(KINDS.values()))[0])
    if number % 50 == 0:
        print(number, flush=True)
assert os.fstat(file).st_size == len(content)
check(0, os.pread(file, LONGEST + 1, 0))
os.fsync(file)
