"""save_torchscript.py FOLDER: modules as TorchScript, scripted and traced, and their numbers."""
import sys

import tensors_file
import torch
from torch import nn


class OwnForward(nn.Module):
    """Children in another order than they are called, one twice, functions between them."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 5)
        self.twice = nn.Linear(8, 8)
        self.first = nn.Linear(3 * 12 * 12, 8)

    def forward(self, x):
        y = self.first(x.flatten(1))
        return self.last(torch.relu(self.twice(torch.relu(self.twice(y))))) * 100


def sequential():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Identity(), nn.Flatten(), nn.Linear(400, 5))


def save_modules(folder, x):
    """scripted and traced, each with TorchScript's own result in evaluation mode."""
    results = {}
    for name, model in {"own": OwnForward(), "sequential": sequential()}.items():
        for how, module in {"scripted": torch.jit.script(model), "traced": torch.jit.trace(model, x)}.items():
            path = f"{folder}/{name}_{how}.pt"
            module.save(path)
            results[f"{name}_{how}"] = torch.jit.load(path).eval()(x)
    tensors_file.write(f"{folder}/results", results)


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
    save_modules(folder, x)


if __name__ == "__main__":
    main()
