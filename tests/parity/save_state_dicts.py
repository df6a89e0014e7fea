"""save_state_dicts.py FOLDER: files as torch.save writes them, good ones and bad ones."""
import os
import sys

import torch
from torch import nn


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def main():
    folder = sys.argv[1]
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    torch.save({
        "float": x, "transposed": x.t(), "half": torch.full((2,), 0.5, dtype=torch.half),
        "bfloat16": torch.full((2,), 0.5, dtype=torch.bfloat16), "long": torch.tensor([-1, 1 << 40]),
        "bool": torch.tensor([True, False]), "double": torch.full((1,), 0.1, dtype=torch.float64),
        "scalar": torch.tensor(3), "empty": torch.empty(0, 3),
    }, f"{folder}/plain.pth")
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    torch.save(model.state_dict(), f"{folder}/module.pth")
    torch.save(dict(model.named_parameters()), f"{folder}/parameters.pth")
    torch.save({"epoch": 3, "loss": 0.5, "state_dict": model.state_dict()}, f"{folder}/checkpoint.pth")
    torch.save(model.state_dict(), f"{folder}/legacy.pth", _use_new_zipfile_serialization=False)
    torch.save(model, f"{folder}/whole_module.pth")
    torch.save({"x": Evil(f"{folder}/executed")}, f"{folder}/evil.pth")


if __name__ == "__main__":
    main()
