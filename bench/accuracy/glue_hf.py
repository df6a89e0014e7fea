#!/usr/bin/env python3
"""glue_hf.py MODEL GLUE rte|cola EPOCHS LR...: the training of glue_runs.py without cuts by Hugging Face's transformers, a JSON line for each rate."""
import json
import random
import sys
import time

import torch
import transformers

MODEL, GLUE, TASK, EPOCHS = *sys.argv[1:4], int(sys.argv[4])
LENGTH = {"rte": 128, "cola": 48}[TASK]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def read(split):
    rows = [line.rstrip("\n").split("\t") for line in open(f"{GLUE}/{'RTE' if TASK == 'rte' else 'CoLA'}/{split}.tsv", encoding="utf-8")]
    if TASK == "cola":
        return [(row[3], None, int(row[1])) for row in rows]
    return [(row[1], row[2], int(row[3] != "entailment")) for row in rows[1:]]


def encoded(samples):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{MODEL}/tokenizer.json", pad_token="[PAD]")
    tokenizer.backend_tokenizer.no_padding()
    pairs = [(a, b) if b is not None else (a,) for a, b, _ in samples]
    batch = tokenizer(*map(list, zip(*pairs)), truncation=True, max_length=LENGTH, padding="max_length", return_tensors="pt", return_token_type_ids=True)
    return {name: batch[name].to(DEVICE) for name in ("input_ids", "attention_mask", "token_type_ids")}, torch.tensor([t for _, _, t in samples], device=DEVICE)


def scores(model, inputs, targets):
    model.eval()
    with torch.no_grad():
        right = torch.cat([model(**{k: v[i:i + 128] for k, v in inputs.items()}).logits.argmax(1) for i in range(0, len(targets), 128)])
    model.train()
    tp, tn = ((right == 1) & (targets == 1)).sum().item(), ((right == 0) & (targets == 0)).sum().item()
    fp, fn = ((right == 1) & (targets == 0)).sum().item(), ((right == 0) & (targets == 1)).sum().item()
    below = ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
    return (tp + tn) / len(targets), (tp * tn - fp * fn) / below if below else 0.0


def main():
    train, validation = encoded(read("train")), encoded(read("dev"))
    for lr in map(float, sys.argv[5:]):
        torch.manual_seed(0)
        random.seed(0)
        model = transformers.BertForSequenceClassification.from_pretrained(MODEL, num_labels=2).float().to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
        count = len(train[1])
        steps = (count + 31) // 32 * EPOCHS
        warmup = steps // 10
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min((k + 1) / warmup, (steps - k) / (steps - warmup)))
        began, by_epoch = time.time(), []
        for _ in range(EPOCHS):
            order, losses = torch.randperm(count), []
            for i in range(0, count, 32):
                at = order[i:i + 32].to(DEVICE)
                loss = torch.nn.functional.cross_entropy(model(**{k: v[at] for k, v in train[0].items()}).logits, train[1][at])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.detach())
            accuracy, matthews = scores(model, *validation)
            by_epoch.append({"train_loss": torch.stack(losses).mean().item(), "accuracy": accuracy, "matthews": matthews})
        print(json.dumps({"name": f"{TASK} transformers {lr}", "lr": lr, "epochs": EPOCHS, "seconds": round(time.time() - began, 1), **by_epoch[-1],
                          "by_epoch": by_epoch}), flush=True)


main()
