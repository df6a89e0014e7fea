"""An unchanged training script plus two lines: what would it cost to cut this network here?

    cut_in_a_script.py [FORWARD [BACKWARD]]    codecs of the cut, by default dct:1 and ec:2
"""

import sys

import torch

import epipe                                                                                          # line 1

torch.manual_seed(1)
front = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU())
head = torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 49, 10))
forward, backward = (sys.argv[1:] + ["dct:1", "ec:2"][len(sys.argv) - 1:])[:2]
net = torch.nn.Sequential(front, epipe.Cut(forward, backward), head)                                  # line 2
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

for step in range(40):
    labels = torch.randint(10, (32,))
    images = torch.randn(32, 3, 16, 16) + labels.view(-1, 1, 1, 1) * 0.3
    loss = torch.nn.functional.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"loss {loss.item():.3f}")
for direction, crossed in net[1].metrics().items():
    print(f"{direction:8} {crossed['codec']:8} {crossed['bits_per_value']:.3f} bits per value, relative error {crossed['rel_error']:.1e}")
