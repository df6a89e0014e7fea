#!/usr/bin/env python3
"""Boundary tensors of MobileNetV2 at 128 px, cuts 4 and 15, for batches of 32 and 128: deep_tensors.py SHARED OUT

SHARED: weights/mobilenet_v2.pth, data/food101-mini. Twelve steps of SGD on Food-101 from the pretrained weights, then activations and
gradients of images that the model has not seen. Needs numpy, torch, torchvision, PIL.
"""
import glob
import random
import sys

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.nn import functional as F

STEPS = 12
CUTS = (4, 15)


def images(paths, classes):
    x = []
    for path in paths:
        pixels = np.asarray(Image.open(path).convert("RGB").resize((128, 128)), np.float32) / 255
        x.append(((pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1))
    return torch.tensor(np.stack(x)).float(), torch.tensor([classes.index(path.split("/")[-2]) for path in paths])


def write(model, x, y, tag, out):
    h, kept = x, {}
    for i, layer in enumerate(model.features, 1):
        h = layer(h)
        if i in CUTS:
            h.retain_grad()
            kept[i] = h
    F.cross_entropy(model.classifier(h.mean((2, 3))), y).backward()
    for i, tensor in kept.items():
        np.save(f"{out}/act{i}_{tag}.npy", tensor.detach().numpy())
        np.save(f"{out}/grad{i}_{tag}.npy", tensor.grad.numpy())


def main():
    shared, out = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torchvision.models.mobilenet_v2()
    model.load_state_dict(torch.load(f"{shared}/weights/mobilenet_v2.pth"))
    paths = sorted(glob.glob(f"{shared}/data/food101-mini/**/*.jpg", recursive=True))
    random.Random(0).shuffle(paths)
    classes = sorted({path.split("/")[-2] for path in paths})
    model.classifier[1] = torch.nn.Linear(1280, len(classes))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)
    for step in range(STEPS):
        x, y = images(paths[32 * step:32 * step + 32], classes)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    seen = 32 * STEPS
    write(model, *images(paths[seen:seen + 32], classes), "32", out)
    write(model, *images(paths[seen + 32:seen + 160], classes), "128", out)
    write(model, *images(paths[seen + 160:seen + 288], classes), "other", out)


if __name__ == "__main__":
    main()
