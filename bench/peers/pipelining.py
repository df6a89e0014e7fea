#!/usr/bin/env python3
"""pipelining.py EPIPE [--steps 30]: milliseconds per step of MobileNetV2, 128 images of 224 px in 4 micro-batches, two stages on one GPU.

torch.distributed.pipelining runs two processes over gloo, whose messages are in host memory: each stage copies its input to the device and
its output back, as nccl cannot join two ranks on one device. epipe runs its two stages as threads of one process, with and without CUDA
graphs. A plain loop without stages is beside both. One JSON line each; medians of the last half of the steps."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gpu"))
import micro_batches

BATCH, CHUNKS, CUT = micro_batches.BATCH, 4, 10
PORT = "29517"


def stage_of(rank):
    from torch import nn
    net = micro_batches.mobilenet_v2(10)
    return nn.Sequential(*(net[:CUT] if rank == 0 else net[CUT:]))


def rank_main(rank, schedule, steps):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed import pipelining
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(rank)

    class Staged(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = stage_of(rank).cuda().to(memory_format=torch.channels_last)

        def forward(self, x):
            return self.own(x.cuda(non_blocking=True).contiguous(memory_format=torch.channels_last)).contiguous().cpu()

    net = Staged()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    images = torch.randn(BATCH, 3, 224, 224)
    labels = torch.randint(10, (BATCH,))
    middle = net(images[:BATCH // CHUNKS]).detach() if rank == 0 else torch.empty(0)
    shape = [list(middle.shape)]
    dist.broadcast_object_list(shape, 0)
    example = images[:BATCH // CHUNKS] if rank == 0 else torch.empty(shape[0])
    stage = pipelining.PipelineStage(net, rank, 2, torch.device("cpu"), input_args=(example,))
    how = {"GPipe": pipelining.ScheduleGPipe, "1F1B": pipelining.Schedule1F1B}[schedule]
    pipeline = how(stage, CHUNKS, loss_fn=nn.functional.cross_entropy)
    times = []
    for _ in range(steps):
        dist.barrier()
        begin = time.perf_counter()
        pipeline.step(images) if rank == 0 else pipeline.step(target=labels)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        dist.barrier()
        times.append(1e3 * (time.perf_counter() - begin))
    if rank == 1:
        micro_batches.report(times, what=f"torch.distributed.pipelining {schedule}", chunks=CHUNKS)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--schedule", default="GPipe")
    flags = parser.parse_args()
    if flags.rank is not None:
        return rank_main(flags.rank, flags.schedule, flags.steps)
    micro_batches.report(micro_batches.plain_loop(CHUNKS, False, flags.steps), what="PyTorch", chunks=CHUNKS)
    for schedule in ("GPipe", "1F1B"):
        ranks = [subprocess.Popen([sys.executable, __file__, "-", "--rank", str(rank), "--schedule", schedule, "--steps", str(flags.steps)])
                 for rank in (0, 1)]
        if any([rank.wait(timeout=120) for rank in ranks]):
            print(json.dumps({"what": f"torch.distributed.pipelining {schedule}", "failed": True}), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch) / "cifar"
        micro_batches.write_random_cifar(data)
        for codec, graphs in [("none", False), ("none", True), ("uniform:8", True)]:
            steps, _ = micro_batches.epipe_run(flags.program, data, pathlib.Path(scratch), codec, CHUNKS, graphs, flags.steps,
                                               [str(CUT)], "0,1")
            micro_batches.report([1e3 * step["seconds"] for step in steps], what="epipe", codec=codec, chunks=CHUNKS, graph=graphs)


if __name__ == "__main__":
    main()
