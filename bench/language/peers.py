#!/usr/bin/env python3
"""peers.py MODEL JAVA OUT.jsonl [SEEDS]: baselines from the field in plain PyTorch (transformers, peft), each with its own row without coding.

The same model, data, cuts and steps as runs.py: LoRA and full fine-tuning, cut after block 0 and before block 7. Coded are activations and
gradients at both cuts, simulated by autograd functions; bits count everything a receiver would need.

  tile:B/G   every token's features in tiles of 128, each between its own minimum and maximum in B bits, two fp16 values beside
             (TAH-Quant's granularity, without its rotation), gradients in G bits
  delta:B/G  AQ-SGD: the change against the activation of the same sample in the epoch before, in B bits with one fp16 scale per token; the
             first epoch crosses in fp16; gradients in G bits by tiles"""
import json
import math
import pathlib
import random
import sys
import time

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

MODEL, JAVA, OUT = sys.argv[1:4]
SEEDS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
LENGTH, BATCH, CHUNKS, PART, EPOCHS, TILE = 256, 16, 2, 0.06, 2, 128
device = "cuda"


def blocks(folder):
    tokenizer = Tokenizer.from_file(f"{MODEL}/tokenizer.json")
    ids = []
    for path in sorted(pathlib.Path(folder).rglob("*.java")):
        ids += tokenizer.encode(path.read_text(), add_special_tokens=False).ids + [0]
    count = len(ids) // LENGTH
    return torch.tensor(ids[:count * LENGTH]).view(count, LENGTH)


def tiles(x, bits):
    """What a receiver makes of x [.., F], and the bits per value."""
    shape = x.shape
    x = x.float().reshape(-1, TILE)
    low, high = x.amin(1, keepdim=True).half().float(), x.amax(1, keepdim=True).half().float()
    step = ((high - low) / (2 ** bits - 1)).clamp_min(1e-12)
    return (((x - low) / step).round().clamp(0, 2 ** bits - 1) * step + low).reshape(shape), bits + 32 / TILE


def delta(x, before, bits):
    if before is None:
        return x.half().float(), 16.0
    change = x.float() - before
    scale = (change.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)).half().float().clamp_min(1e-7)
    return before + (change / scale).round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scale, bits + 16 / x.shape[-1]


class Coded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cut, samples):
        ctx.cut = cut
        return cut.forward(x, samples).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.cut.backward(gradient).to(gradient.dtype), None, None


class Cut:
    """One cut; counts what crosses in training."""
    def __init__(self, kind, forward_bits, backward_bits):
        self.kind, self.bits = kind, (forward_bits, backward_bits)
        self.store, self.training, self.sums = {}, True, [[0.0, 0], [0.0, 0]]

    def count(self, direction, bits, values):
        if self.training:
            self.sums[direction][0] += bits * values
            self.sums[direction][1] += values

    def forward(self, x, samples):
        if self.kind == "none":
            self.count(0, 32, x.numel())
            return x
        if self.kind == "tile":
            y, bits = tiles(x, self.bits[0])
            self.count(0, bits, x.numel())
            return y
        rows = []
        for row, sample in zip(x.detach(), samples):
            before = self.store.get(sample) if sample >= 0 else None
            y, bits = delta(row, before, self.bits[0])
            self.count(0, bits, row.numel())
            if sample >= 0:
                self.store[sample] = y
            rows.append(y)
        return torch.stack(rows)

    def backward(self, gradient):
        if self.kind == "none":
            self.count(1, 32, gradient.numel())
            return gradient
        y, bits = tiles(gradient, self.bits[1])
        self.count(1, bits, gradient.numel())
        return y


def load(how):
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).to(device)
    if how == "lora":
        from peft import LoraConfig, get_peft_model
        targets = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj".split()
        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM"))
    return model


def run(how, kind, forward_bits, backward_bits, seed, train, val):
    torch.manual_seed(seed)
    model = load(how)
    layers = (model.model if how == "full" else model.base_model.model.model).layers
    cuts, state = [Cut(kind, forward_bits, backward_bits) for _ in range(2)], {"samples": []}
    def before(cut):
        return lambda module, args, kwargs: ((Coded.apply(args[0], cut, state["samples"]), *args[1:]), kwargs)
    layers[1].register_forward_pre_hook(before(cuts[0]), with_kwargs=True)
    layers[7].register_forward_pre_hook(before(cuts[1]), with_kwargs=True)
    parameters = [p for p in model.parameters() if p.requires_grad]
    base = 1e-3 if how == "lora" else 2e-4
    optimizer = torch.optim.AdamW(parameters, lr=base, weight_decay=0)
    steps, step, begin = math.ceil(len(train) / BATCH) * EPOCHS, 0, time.time()
    for epoch in range(EPOCHS):
        order = list(range(len(train)))
        random.Random(seed * 1000 + epoch).shuffle(order)
        for first in range(0, len(order), BATCH):
            batch = order[first:first + BATCH]
            for part in range(CHUNKS):
                ids = batch[part * len(batch) // CHUNKS:(part + 1) * len(batch) // CHUNKS]
                if not ids:
                    continue
                state["samples"] = ids
                x = train[ids].to(device)
                with torch.autocast("cuda", torch.bfloat16):
                    loss = model(input_ids=x, labels=x).loss
                (loss * len(ids) / len(batch)).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            for group in optimizer.param_groups:
                group["lr"] = base * (1 - step / steps)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
    total = 0.0
    for cut in cuts:
        cut.training = False
        cut.kind = "tile" if cut.kind == "delta" else cut.kind  # no epoch before for these
        cut.bits = (8, 8) if kind == "delta" else cut.bits
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for first in range(0, len(val), 32):
            x = val[first:first + 32].to(device)
            state["samples"] = [-1] * len(x)
            total += model(input_ids=x, labels=x).loss.item() * len(x)
    bits = {f"{j} {name}": round(cut.sums[d][0] / max(1, cut.sums[d][1]), 3) for j, cut in enumerate(cuts) for d, name in enumerate(("forward", "backward"))}
    return {"name": f"peer {how} {kind}:{forward_bits}/{backward_bits} seed {seed}", "kind": how, "codec": f"{kind}:{forward_bits}/{backward_bits}", "seed": seed,
            "steps": steps, "val_loss": total / len(val), "bits_per_value": bits, "seconds": round(time.time() - begin, 1)}


def main():
    train, val = blocks(f"{JAVA}/train"), blocks(f"{JAVA}/val")
    part = torch.linspace(0, len(train) - 1, int(len(train) * PART)).long()
    val = val[torch.linspace(0, len(val) - 1, max(1, int(len(val) * PART))).long()]
    train = train[part]
    with open(OUT, "a") as out:
        for seed in range(SEEDS):
            for how in ("lora", "full"):
                for kind, b, g in (("none", 32, 32), ("tile", 4, 4), ("tile", 3, 3), ("delta", 4, 8), ("delta", 2, 4)):
                    result = run(how, kind, b, g, seed, train, val)
                    out.write(json.dumps(result) + "\n")
                    out.flush()
                    print(result["name"], round(result["val_loss"], 4), result["bits_per_value"], result["seconds"], flush=True)


main()
