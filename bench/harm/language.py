#!/usr/bin/env python3
"""language.py EPIPE CORPUS DIR: a small llama over bytes, trained on the C of CORPUS (bench/language/corpus.sh), for runs.py's setting `language`, which adapts
it to CORPUS's Java: DIR/model and DIR/java. Some minutes on two cores."""
import json
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from byte_tokenizer import write_byte_tokenizer

CONFIG = {"model_type": "llama", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 4, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "eos_token_id": 0}

epipe, corpus, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
model = folder / "model"
model.mkdir(parents=True)
(model / "config.json").write_text(json.dumps(CONFIG))
write_byte_tokenizer(model)
shutil.copytree(corpus / "java", folder / "java")
subprocess.run([epipe, "train", "--model", f"hf:{model}", "--data", f"text:{corpus / 'c'}", "--max-length", "128", "--batch", "16", "--optimizer", "adamw",
                "--lr", "2e-3", "--lr-schedule", "cosine", "--warmup", "50", "--clip", "1", "--data-part", "0.05", "--epochs", "1", "--max-steps", "1000",
                "--threads", "2", "--seed", "1", "--run-dir", str(folder / "pre")], check=True)
shutil.copy(folder / "pre" / "model.safetensors", model)
