#!/usr/bin/env python3
"""What the layers beside a cut see of a codec's error.

Fine-tunes ImageNet's MobileNetV2 on CIFAR-10 for a few steps with PyTorch, then sends the activations behind its first convolution, and the
gradient that comes back, through `epipe codec encode` and `decode`, and lets the layers on both sides work with what comes out. One JSON object
per codec: relative errors (squared) of the tensors themselves, of the pooled features that the classifier gets, and of the gradients of the
first convolution and its normalization, without and with moments beside it (README.md). Numbers of a few steps on a few images: for comparing codecs, not for predicting accuracies.

    measure.py EPIPE mobilenet_v2.pth CIFAR10_FOLDER [codec ...] > results.jsonl
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

CODECS = ["sort:6+2", "ec:2", "ec:1", "dct:2", "dct:1", "dct:0.5", "dct:0.25", "dct:0.125", "dct:0.06"]
STEPS, BATCH, MEASURED, EDGE = 12, 32, 64, 224


def images(folder, first, count):
    records = np.fromfile(os.path.join(folder, "data_batch_1.bin"), np.uint8).reshape(-1, 3073)[first : first + count]
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
    deviation = torch.tensor([0.247, 0.243, 0.261]).view(1, 3, 1, 1)
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255)
    small = (pixels - mean) / deviation
    return F.interpolate(small, size=EDGE, mode="bilinear", align_corners=False), torch.from_numpy(records[:, 0].astype(np.int64))


def round_trip(epipe, codec, x, folder):
    paths = [os.path.join(folder, name) for name in ("x.npy", "x.epf", "y.npy")]
    np.save(paths[0], x.detach().contiguous().numpy())
    subprocess.run([epipe, "codec", "encode", paths[0], paths[1], "--codec", codec], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([epipe, "codec", "decode", paths[1], paths[2]], check=True, stdout=subprocess.DEVNULL)
    return torch.from_numpy(np.load(paths[2])), 8 * os.path.getsize(paths[1]) / x.numel()


def relative(x, y):
    return float((x - y).square().sum() / x.square().sum())


def flat(x):
    return x.detach().transpose(0, 1).reshape(x.shape[1], -1).double()


def with_moments(gradient, wanted, activations):
    """The decoded gradient, with the moments that were sent beside it put back."""
    maps = torch.cat([flat(activations), torch.ones(1, flat(activations).shape[1]).double()])
    gram = maps @ maps.T
    unit = torch.where(gram.diag() > 0, gram.diag().clamp(min=1e-300).rsqrt(), torch.zeros_like(gram.diag()))
    inverse = torch.linalg.pinv(gram * unit[:, None] * unit[None, :], rcond=1e-5, hermitian=True)
    factors = ((wanted - flat(gradient) @ maps.T) * unit) @ inverse * unit
    n, c, h, w = gradient.shape
    return gradient + (factors @ maps).float().reshape(c, n, h, w).transpose(0, 1)


def fine_tuned(weights, data, steps, rate):
    torch.manual_seed(0)
    model = torchvision.models.mobilenet_v2()
    model.load_state_dict(torch.load(weights))
    model.classifier[1] = torch.nn.Linear(1280, 10)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for step in range(steps):
        x, y = images(data, step * BATCH, BATCH)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def main():
    epipe, weights, data = sys.argv[1:4]
    model = fine_tuned(weights, data, STEPS, 0.02)
    stem, middle = model.features[0], model.features[1:]
    x, y = images(data, STEPS * BATCH, MEASURED)
    out = stem(x)
    sent = out.detach().requires_grad_()
    pooled = middle(sent).mean((2, 3))
    F.cross_entropy(model.classifier(pooled), y).backward()
    parameters = dict(zip(("convolution", "gamma", "beta"), stem.parameters()))
    exact = torch.autograd.grad(out, parameters.values(), sent.grad, retain_graph=True)
    centred = pooled.detach() - pooled.detach().mean(0)

    with tempfile.TemporaryDirectory() as folder:
        for codec in sys.argv[4:] or CODECS:
            activations, forward_bits = round_trip(epipe, codec, sent, folder)
            gradient, backward_bits = round_trip(epipe, codec, sent.grad, folder)
            with torch.no_grad():
                features = float((middle(activations).mean((2, 3)) - pooled).square().sum() / centred.square().sum())
            received = torch.cat([flat(activations), torch.ones(1, flat(activations).shape[1]).double()])
            restored = with_moments(gradient, flat(sent.grad) @ received.T, activations)
            row = {"codec": codec, "forward_bits": forward_bits, "activations": relative(sent.detach(), activations), "features": features,
                   "backward_bits": backward_bits, "gradient": relative(sent.grad, gradient)}
            for suffix, used in (("", gradient), ("_with_moments", restored)):
                got = torch.autograd.grad(out, parameters.values(), used, retain_graph=True)
                row.update({name + suffix: relative(a, b) for name, a, b in zip(parameters, exact, got)})
            print(json.dumps({k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in row.items()}), flush=True)


if __name__ == "__main__":
    main()
