#!/usr/bin/env python3
"""bert_reference.py OUT: a tiny BertForSequenceClassification by Hugging Face's transformers, its logits, loss and gradients, as one
safetensors file; tests/model/bert_tiny.safetensors was made by it with transformers 4.30."""
import json
import sys

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(7)
config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=12,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3, initializer_range=0.2)
model = BertForSequenceClassification(config).double()
ids = torch.randint(1, 50, (3, 9))
mask = torch.ones(3, 9, dtype=torch.long)
mask[1, 6:] = 0
mask[2, 4:] = 0
ids = ids * mask
types = torch.zeros(3, 9, dtype=torch.long)
types[:, 3:] = 1
labels = torch.tensor([0, 2, 1])
out = model(input_ids=ids, attention_mask=mask, token_type_ids=types, labels=labels)
out.loss.backward()
tensors = {name: x.detach().float() for name, x in model.named_parameters()}
tensors |= {"grad." + name: x.grad.float() for name, x in model.named_parameters()}
tensors |= {"ref.input_ids": ids, "ref.attention_mask": mask, "ref.token_type_ids": types, "ref.labels": labels,
            "ref.logits": out.logits.detach().float(), "ref.loss": out.loss.detach().float()}
save_file({name: x.contiguous() for name, x in tensors.items()}, sys.argv[1], {"config": json.dumps(config.to_dict())})
