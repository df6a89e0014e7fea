"""torchvision_reference.py MODEL IN OUT: what torchvision's model computes with the weights, images and labels of a file.

IN holds the state dict, input.x, input.y and mask.NAME, the factors that dropout NAME multiplies with while training.
OUT gets eval and train (logits), loss, grad.NAME for every parameter and buffer.NAME after the training step."""
import sys

import tensors_file
import torch
import torchvision


class Mask(torch.nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def forward(self, x):
        return x * self.mask if self.training else x


def main():
    name, source, target = sys.argv[1:]
    torch.set_num_threads(1)
    given = tensors_file.read(source)
    x, y = given.pop("input.x"), given.pop("input.y")
    masks = {key[len("mask."):]: given.pop(key) for key in list(given) if key.startswith("mask.")}
    head = [value for key, value in given.items() if key in ("classifier.1.bias", "classifier.6.bias", "fc.bias")][0]
    model = getattr(torchvision.models, name)(num_classes=len(head))
    model.load_state_dict(given, strict=True)
    dropouts = [key for key, module in model.named_modules() if isinstance(module, torch.nn.Dropout)]
    assert sorted(dropouts) == sorted(masks), f"expected masks for {dropouts}, got {list(masks)}"
    for key, mask in masks.items():
        parent, _, child = key.rpartition(".")
        setattr(model.get_submodule(parent), child, Mask(mask))

    with torch.no_grad():
        result = {"eval": model.eval()(x)}
    logits = model.train()(x)
    loss = torch.nn.functional.cross_entropy(logits, y)
    loss.backward()
    result.update({"train": logits, "loss": loss.reshape(1)})
    result.update({f"grad.{key}": p.grad for key, p in model.named_parameters()})
    result.update({f"buffer.{key}": b for key, b in model.named_buffers()})
    tensors_file.write(target, result)


if __name__ == "__main__":
    main()
