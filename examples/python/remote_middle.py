"""torchvision's MobileNetV2 with its middle on a server.

    epipe serve --insecure --models DIR &        # DIR holds a copy of middle.pt, which `remote_middle.py --save middle.pt` writes
    remote_middle.py HOST:PORT middle.pt [--tls TLS]

The client keeps images, labels, the first layers and the classifier.
"""

import argparse

import torch
import torchvision

import epipe

parser = argparse.ArgumentParser()
parser.add_argument("connect", nargs="?")
parser.add_argument("middle", nargs="?")
parser.add_argument("--save")
parser.add_argument("--tls")
parser.add_argument("--steps", type=int, default=6)
arguments = parser.parse_args()

torch.manual_seed(1)
net = torchvision.models.mobilenet_v2(num_classes=10)
front, middle, head = net.features[:2], net.features[2:], torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), net.classifier)
if arguments.save:
    torch.jit.script(middle).save(arguments.save)
    raise SystemExit

stage = epipe.RemoteStage(arguments.connect, f"torchscript:{arguments.middle}", tls=arguments.tls, insecure=arguments.tls is None,
                          codec="dct:1", optimizer={"kind": "sgd", "lr": 0.02, "momentum": 0.9})
optimizer = torch.optim.SGD([*front.parameters(), *head.parameters()], lr=0.02, momentum=0.9)
with stage:
    for step in range(arguments.steps):
        labels = torch.arange(8) % 10
        images = torch.randn(8, 3, 64, 64) + labels.view(-1, 1, 1, 1)
        loss = torch.nn.functional.cross_entropy(head(stage(front(images))), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stage.step()
        print(f"step {step}: loss {loss.item():.3f}")
    crossed = stage.metrics()
    print(f"{crossed['before']['forward']['bits_per_value']:.2f} bits per activation before the stage, "
          f"{crossed['after']['backward']['bits_per_value']:.2f} per gradient after it")
