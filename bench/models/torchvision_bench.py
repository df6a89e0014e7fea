"""torchvision_bench.py MODEL: the same step as models_bench, by PyTorch in Python."""
import sys
import time

import torch
import torchvision

torch.set_num_threads(1)
model = getattr(torchvision.models, sys.argv[1])().train()
images, labels = torch.randn(8, 3, 224, 224), torch.zeros(8, dtype=torch.long)
for _ in range(6):
    begin = time.process_time()
    logits = model(images)
    middle = time.process_time()
    torch.nn.functional.cross_entropy(logits, labels).backward()
    print(f"forward {middle - begin:.3f} backward {time.process_time() - middle:.3f}")
