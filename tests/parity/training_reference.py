"""training_reference.py IN OUT: 20 steps of the small network "cnn" by torch.optim and torch.optim.lr_scheduler.

IN holds the state dict, input.x [steps, B, C, H, W], input.y [steps, B] and, as arguments, the optimizer and schedule."""
import argparse

import tensors_file
import torch
from torch import nn, optim
from torch.optim import lr_scheduler


def network(weights):
    model = nn.Module()
    model.features = nn.ModuleList()
    for i, stride in enumerate((1, 2, 1, 2)):
        out, inner = weights[f"features.{i}.conv.weight"].shape[:2]
        block = nn.Module()
        block.conv = nn.Conv2d(inner, out, 3, stride, 1, bias=False)
        block.bn = nn.BatchNorm2d(out)
        model.features.append(block)
    classes, channels = weights["classifier.linear.weight"].shape
    model.classifier = nn.Module()
    model.classifier.linear = nn.Linear(channels, classes)
    model.load_state_dict(weights, strict=True)
    return model


def forward(model, x):
    for block in model.features:
        x = torch.relu(block.bn(block.conv(x)))
    return model.classifier.linear(x.mean((2, 3)))


def schedule(optimizer, kind, power, warmup, total):
    """The curve over the steps after the warm-up; the warm-up itself rises linearly and is never 0."""
    length = total - warmup
    curve = {
        "constant": lambda: lr_scheduler.ConstantLR(optimizer, 1, length),
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, length),
        "linear": lambda: lr_scheduler.LinearLR(optimizer, 1, 0, length),
        "polynomial": lambda: lr_scheduler.LambdaLR(optimizer, lambda step: (1 - step / length) ** power),
    }[kind]
    if warmup == 0:
        return curve()
    rise = lr_scheduler.LinearLR(optimizer, 1 / warmup, 1, warmup - 1)
    return lr_scheduler.SequentialLR(optimizer, [rise, curve()], [warmup])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--optimizer")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--momentum", type=float)
    parser.add_argument("--nesterov", type=int)
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--schedule")
    parser.add_argument("--power", type=float)
    parser.add_argument("--warmup", type=int)
    a = parser.parse_args()
    torch.set_num_threads(1)
    given = tensors_file.read(a.source)
    x, y = given.pop("input.x"), given.pop("input.y")
    model = network(given)
    make = {
        "sgd": lambda p: optim.SGD(p, a.lr, momentum=a.momentum, weight_decay=a.weight_decay, nesterov=bool(a.nesterov)),
        "adam": lambda p: optim.Adam(p, a.lr, weight_decay=a.weight_decay),
        "adamw": lambda p: optim.AdamW(p, a.lr, weight_decay=a.weight_decay),
    }[a.optimizer]
    optimizer = make(model.parameters())
    rates = schedule(optimizer, a.schedule, a.power, a.warmup, len(x))
    used, losses = [], []
    for images, labels in zip(x, y):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(model, images), labels)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        rates.step()
    result = dict(model.state_dict())
    result.update({"lr": torch.tensor(used, dtype=torch.float64), "loss": torch.tensor(losses, dtype=torch.float64)})
    tensors_file.write(a.target, result)


if __name__ == "__main__":
    main()
