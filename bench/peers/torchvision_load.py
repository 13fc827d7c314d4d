#!/usr/bin/env python3
"""torchvision_load.py DIR N BATCH WORKERS [IMAGE]: torchvision's ImageFolder and transforms of PyTorch's
ImageNet example, by a DataLoader; prints the images, seconds and CPU seconds of all of its processes."""
import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
import torchvision
from torchvision import transforms

folder, n_wanted, batch, workers = sys.argv[1], *map(int, sys.argv[2:5])
side = int(sys.argv[5]) if len(sys.argv) > 5 else 224
torch.set_num_threads(1)
data = torchvision.datasets.ImageFolder(folder + "/train", transforms.Compose([
    transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))


def load():
    n = 0
    while n < n_wanted:
        for x, _ in torch.utils.data.DataLoader(data, batch, shuffle=True, num_workers=workers):
            n += len(x)
            if n >= n_wanted:
                break
    return n


begin, before = time.monotonic(), os.times()
images = load()
after = os.times()
print(json.dumps({"images": images, "seconds": time.monotonic() - begin,
                  "cpu_seconds": sum(after[:4]) - sum(before[:4])}))
