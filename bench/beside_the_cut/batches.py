#!/usr/bin/env python3
"""Whether a codec's error in the gradients of the first layers adds up over steps, and how it compares with the chance of a batch.

Fine-tunes ImageNet's MobileNetV2 on CIFAR-10 for 60 steps with PyTorch, keeps the weights, and makes the gradients of the first convolution and
its normalization from ten batches of 32 images, exactly and from a coded gradient, without and with moments. One JSON object per codec and
parameter: `noise` is the share of the exact gradients' energy in which batches differ, `error` the error's energy over the gradients' own, and
`constant` how much larger the mean of the errors is than ten errors without anything in common would leave: 1 for chance, 10 for a constant.

    batches.py EPIPE mobilenet_v2.pth CIFAR10_FOLDER [codec ...] > batches.jsonl
"""
import json
import sys
import tempfile

import torch
import torch.nn.functional as F

from measure import BATCH, fine_tuned, flat, images, round_trip, with_moments

CODECS = ["dct:1", "dct:0.5", "dct:0.25", "dct:0.125", "ec:1"]
STEPS, BATCHES = 60, 10
NAMES = ("convolution", "gamma", "beta")


def main():
    epipe, weights, data = sys.argv[1:4]
    model = fine_tuned(weights, data, STEPS, 0.003)
    stem, middle = model.features[0], model.features[1:]
    parameters = list(stem.parameters())
    exact, errors = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for batch in range(STEPS, STEPS + BATCHES):
            x, y = images(data, batch * BATCH, BATCH)
            out = stem(x)
            sent = out.detach().requires_grad_()
            F.cross_entropy(model.classifier(middle(sent).mean((2, 3))), y).backward()

            def of(gradient):
                return [g.flatten().double() for g in torch.autograd.grad(out, parameters, gradient, retain_graph=True)]

            exact.append(of(sent.grad))
            for codec in sys.argv[4:] or CODECS:
                activations, _ = round_trip(epipe, codec, sent, folder)
                gradient, _ = round_trip(epipe, codec, sent.grad, folder)
                received = torch.cat([flat(activations), torch.ones(1, flat(activations).shape[1]).double()])
                restored = with_moments(gradient, flat(sent.grad) @ received.T, activations)
                for moments, used in ((False, gradient), (True, restored)):
                    errors.setdefault((codec, moments), []).append([a - b for a, b in zip(of(used), exact[-1])])

    for i, name in enumerate(NAMES):
        gradients = torch.stack([g[i] for g in exact])
        energy = gradients.square().sum(1).mean()
        noise = (gradients - gradients.mean(0)).square().sum(1).mean() * BATCHES / (BATCHES - 1) / energy
        for (codec, moments), of_batches in errors.items():
            error = torch.stack([e[i] for e in of_batches])
            own = error.square().sum(1).mean()
            row = {"parameter": name, "codec": codec, "moments": moments, "noise": float(noise), "error": float(own / energy),
                   "constant": float(error.mean(0).square().sum() * BATCHES / own)}
            print(json.dumps({k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in row.items()}), flush=True)


if __name__ == "__main__":
    main()
