#!/usr/bin/env python3
"""tokenizer.py CORPUS OUT: a byte-level BPE of 8,192 tokens for both languages of the corpus, by Hugging Face's tokenizers (PyPI)."""
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

corpus, out = (pathlib.Path(argument) for argument in sys.argv[1:3])
files = [str(path) for kind in ("c", "java") for path in sorted((corpus / kind / "train").iterdir())[::4]]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train(files, trainers.BpeTrainer(vocab_size=8192, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
out.mkdir(parents=True, exist_ok=True)
tokenizer.save(str(out / "tokenizer.json"))
