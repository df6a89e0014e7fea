"""save_torchscript.py FOLDER: an nn.Sequential as TorchScript, and its numbers."""
import sys

import tensors_file
import torch
from torch import nn


def main():
    folder = sys.argv[1]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3, padding=1), nn.Flatten(),
        nn.Linear(4 * 6 * 6, 5))
    torch.jit.script(model).save(f"{folder}/plain.pt")
    torch.jit.script(nn.Sequential(nn.Conv2d(3, 5, 12), nn.BatchNorm2d(5), nn.Dropout(0.5), nn.Flatten())).save(f"{folder}/random.pt")
    torch.jit.script(nn.ReLU()).save(f"{folder}/single.pt")
    x = torch.randn(4, 3, 12, 12)
    y = model(x)
    y.square().mean().backward()
    tensors = {"x": x, "y": y}
    tensors.update({f"grad.{name}": p.grad for name, p in model.named_parameters()})
    tensors_file.write(f"{folder}/expected", tensors)


if __name__ == "__main__":
    main()
