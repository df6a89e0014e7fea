"""A tokenizer for text:... whose tokens are bytes: files in Hugging Face's layout, written to a folder."""
import json


def write_byte_tokenizer(folder):
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": letters, "merges": [], "byte_fallback": False}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
                                                       "post_processor": None, "decoder": level, "model": model}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": chr(256)}))  # the byte 0
