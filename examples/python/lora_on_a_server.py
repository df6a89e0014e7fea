"""LoRA for a Hugging Face decoder, with its middle blocks on a server.

    epipe serve --insecure &
    lora_on_a_server.py HOST:PORT DIR [--tls TLS]       # DIR: config.json and model.safetensors of a gpt2, llama, qwen2 or qwen3

The client keeps text, embedding, the first and the last block, and computes them with transformers, frozen. The server gets the blocks in
between once, and trains thin matrices beside their weights. The model's own forward and loss are used unchanged.
"""

import argparse

import torch
import transformers

import epipe

parser = argparse.ArgumentParser()
parser.add_argument("connect")
parser.add_argument("model")
parser.add_argument("--tls")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--tokens", type=int, default=32)
arguments = parser.parse_args()


class Blocks(torch.nn.Module):
    """Replaces a model's blocks by a stage."""

    def __init__(self, stage):
        super().__init__()
        self.stage = stage
        self.is_tuple = int(transformers.__version__.split(".")[0]) < 5  # what a block returns

    def forward(self, hidden_states, *args, **kwargs):
        y = self.stage(hidden_states)
        return (y,) if self.is_tuple else y


torch.manual_seed(1)
model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, torch_dtype=torch.float32)
model.requires_grad_(False)
model.config.use_cache = False
decoder = model.base_model
name = "h" if hasattr(decoder, "h") else "layers"
blocks = getattr(decoder, name)
stage = epipe.RemoteStage(arguments.connect, f"hf:{arguments.model}", layers=(2, len(blocks)), lora="r=4,alpha=8", tls=arguments.tls,
                          data={"tokens": arguments.tokens, "vocabulary": model.config.vocab_size}, insecure=arguments.tls is None,
                          codec="ec:4", optimizer={"kind": "adamw", "lr": 1e-2})  # layer 0 is the embedding, so 2 is the second block
setattr(decoder, name, torch.nn.ModuleList([blocks[0], Blocks(stage), blocks[-1]]))

with stage:
    ids = torch.randint(model.config.vocab_size, (4, arguments.tokens))
    for step in range(arguments.steps):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        stage.step()
        print(f"step {step}: loss {loss.item():.4f}")
    adapter = {name: tensor for name, tensor in stage.state_dict().items() if "lora_" in name}
    print(f"{len(adapter)} matrices of the adapter, {sum(tensor.numel() for tensor in adapter.values())} values")
