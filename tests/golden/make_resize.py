#!/usr/bin/env python3
"""What the Python Imaging Library makes of a picture's parts: the table of tests/data_decode.c."""
import zlib
from PIL import Image

WIDTH, HEIGHT = 37, 29
pixels = bytes((x * 7 + y * 13 + c * 50 + x * y) & 255 for y in range(HEIGHT) for x in range(WIDTH) for c in range(3))
picture = Image.frombytes("RGB", (WIDTH, HEIGHT), pixels)
for part, size in [((0, 0, 37, 29), (50, 41)), ((0, 0, 37, 29), (16, 9)), ((5, 3, 20, 17), (24, 24)),
                   ((30, 20, 7, 9), (1, 3)), ((0, 0, 37, 29), (37, 5)), ((2, 1, 1, 1), (4, 4))]:
    x, y, width, height = part
    made = picture.crop((x, y, x + width, y + height)).resize(size, Image.BILINEAR)
    print("{{%d, %d, %d, %d}, %d, %d, 0x%08x}," % (*part, *size, zlib.crc32(made.tobytes())))
