#!/usr/bin/env python3
"""encode and decode of CUDA tensors from Python, one JSON line for each codec, in GB of float32 per second.

    PYTHONPATH=build/python-cuda/python bench/python/device_rate.py [SPEC...]

A frame is bytes on the host, so a copy of as many bytes from and to the device is timed beside it (copy_out, copy_in: pageable memory), and
`epipe bench codec --device`, whose payloads stay on the device (program_encode, program_decode), where the program has CUDA. Medians."""
import json
import statistics
import subprocess
import sys
import time

import torch

import epipe

SHAPE, ROUNDS = (32, 32, 112, 112), 20


def seconds(work):
    """The median of a call whose result is there when the device is idle again."""
    times = []
    for i in range(ROUNDS + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:])


def program_rates(spec):
    done = subprocess.run([epipe.program(), "bench", "codec", "--device", "cuda:0", "--shape", ",".join(map(str, SHAPE)), "--codec", spec, "--json"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []
    for line in lines:
        if line["tensor"] == "maps" and line["codec"] == spec:
            return {"program_encode": line["encode_GBps"], "program_decode": line["decode_GBps"]}
    return {}


def main():
    torch.manual_seed(1)
    maps = torch.nn.functional.avg_pool2d(torch.randn(SHAPE[0], SHAPE[1], SHAPE[2] + 2, SHAPE[3] + 2), 3, 1)
    x = (maps - 0.1).relu().cuda()
    gigabytes = x.numel() * 4 / 1e9
    print(json.dumps({"device": torch.cuda.get_device_name(), "pytorch": torch.__version__, "shape": SHAPE}), flush=True)
    for spec in sys.argv[1:] or ["none", "fp16", "uniform:8", "sort:6+2", "topk:0.1", "ec:2", "dct:1", "dct:0.25", "power:4"]:
        codec = epipe.Codec(spec)
        frame = codec.encode(x)
        on_device = torch.empty(len(frame), dtype=torch.uint8, device="cuda")
        on_host = torch.empty(len(frame), dtype=torch.uint8)
        assert torch.equal(epipe.decode(frame, device="cuda").cpu(), epipe.decode(frame)), spec
        rates = {"encode_view": seconds(lambda: codec.encode_view(x)), "encode": seconds(lambda: codec.encode(x)),
                 "decode": seconds(lambda: epipe.decode(frame, device="cuda")), "copy_out": seconds(lambda: on_host.copy_(on_device)),
                 "copy_in": seconds(lambda: on_device.copy_(on_host))}
        line = {"codec": spec, "frame_bytes": len(frame), **{name: gigabytes / time for name, time in rates.items()}, **program_rates(spec)}
        print(json.dumps({name: round(value, 2) if isinstance(value, float) else value for name, value in line.items()}), flush=True)


if __name__ == "__main__":
    main()
