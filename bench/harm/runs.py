#!/usr/bin/env python3
"""runs.py SETTING DATA [WEIGHTS] [--seeds N] [--codecs "none dct:2 ..."] [--bounds "0.01,0.3 ..."] [--devices cuda:0]: the trainings of the study, a line for
bench/sweep.py each. Fixed rates are audited without changing anything (--audit); --codec auto runs once for every pair of --loss-added and --harm in --bounds.

SETTING is mobilenet-1,19, mobilenet-4,15, mobilenet-7,17 (CIFAR-10 at 128 px, 2 epochs, from ImageNet's WEIGHTS), resnet18-3,7 (CIFAR-10 at 64 px,
6 epochs, from scratch), vgg13-3,7 (the same, 4 epochs), sst2 (the four-layer RoBERTa of bench/accuracy on SST-2, from scratch; DATA holds glue/ and
roberta-bpe/), or cnn and transformer (generated images and texts, for a machine without a GPU), or language (LoRA on a small llama; DATA is
made by language.py). Shorter: --part F of the data, --epochs N, --chunks N."""
import argparse
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent

FIXED = "none auto:4 auto:2 auto:1 auto:0.5 auto:0.25 auto:0.125"


def common(setting, data, weights, devices):
    training = ["--batch", "128", "--momentum", "0.9", "--lr-schedule", "cosine", "--warmup", "20", "--place", "0,0,0", "--devices", devices]
    model, _, cuts = setting.partition("-")
    if model == "mobilenet":
        return ["--model", "mobilenet_v2", "--weights", weights, "--data", f"cifar10:{data}", "--image-size", "128", "--resize-on", "device", "--cuts", cuts,
                "--chunks", "4", "--lr", "0.02", "--epochs", "2", *training]
    if model == "resnet18":
        return ["--model", "resnet18", "--data", f"cifar10:{data}", "--image-size", "64", "--resize-on", "device", "--cuts", cuts, "--chunks", "4",
                "--lr", "0.05", "--epochs", "6", *training]
    if model == "vgg13":
        return ["--model", "vgg13", "--data", f"cifar10:{data}", "--image-size", "64", "--resize-on", "device", "--cuts", cuts, "--chunks", "4",
                "--lr", "0.01", "--clip", "1", "--epochs", "4", *training]
    if model == "sst2":
        return ["--model", f"roberta:{HERE.parent / 'accuracy/roberta4'}", "--data", f"glue/sst2:{data}/glue", "--bpe", f"{data}/roberta-bpe", "--max-length", "64",
                "--cuts", "layer.0.ffn,classifier", "--place", "0,0,0", "--devices", devices, "--chunks", "2", "--batch", "64", "--epochs", "1",
                "--optimizer", "adamw", "--lr", "5e-4", "--weight-decay", "0.01", "--warmup", "20", "--clip", "1"]
    if model == "language":
        return ["--model", f"hf:{data}/model", "--data", f"text:{data}/java", "--max-length", "128", "--cuts", "block.1,block.3", "--place", "0,0,0",
                "--chunks", "2", "--batch", "16", "--lora", "r=8,alpha=16,targets=q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+down_proj",
                "--optimizer", "adamw", "--lr", "1e-3", "--lr-schedule", "linear", "--clip", "1", "--epochs", "2", "--data-part", "0.02"]
    if model == "transformer":
        return ["--model", "transformer", "--chunks", "4", "--optimizer", "adam", "--lr", "0.001", "--lr-schedule", "cosine", "--epochs", "4", "--batch", "64",
                "--place", "0,0,0"]
    return ["--model", "cnn", "--cuts", "1,4", "--chunks", "4", "--lr", "0.1", "--epochs", "8", "--batch", "64", "--momentum", "0.9", "--place", "0,0,0"]


def shortened(arguments, changed):
    """With other values of flags that it has."""
    arguments = list(arguments)
    for flag, value in changed.items():
        arguments[arguments.index(flag) + 1] = str(value)
    return arguments


def run_of(setting, arguments, name, seed):
    """`name`: a codec, or "auto loss 0.01 harm 0.1" for the codec auto with these bounds."""
    codec, *bounds = name.split()
    more = ["--loss-added", bounds[1], "--harm", bounds[3]] if bounds else [] if codec in ("none", "auto") else ["--audit"]
    return {"name": f"{setting} {name} seed {seed}", "setting": setting, "codec": name, "seed": seed,
            "args": [*arguments, "--codec", codec, *more, "--seed", str(seed), "--error-every", "0"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("setting")
    parser.add_argument("data")
    parser.add_argument("weights", nargs="?", default="")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--codecs", default=FIXED)
    parser.add_argument("--bounds", default="0.003,0.1 0.01,0.1 0.03,0.1 0.01,0.03 0.01,0.3")
    parser.add_argument("--devices", default="cuda:0")
    for shorter in ("part", "epochs", "chunks"):
        parser.add_argument(f"--{shorter}")
    args = parser.parse_args()
    changed = {f"--{name}": vars(args)[name] for name in ("epochs", "chunks") if vars(args)[name]}
    arguments = shortened(common(args.setting, args.data, args.weights, args.devices), changed)
    arguments += ["--data-part", args.part] if args.part else []
    names = args.codecs.split() + ["auto loss {} harm {}".format(*bounds.split(",")) for bounds in args.bounds.split()]
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name in names:
            print(json.dumps(run_of(args.setting, arguments, name, seed)))


if __name__ == "__main__":
    main()
