#!/usr/bin/env python3
"""tokenizer_cases.py > tokenizer_cases.json: what Hugging Face's `tokenizers` (PyPI) makes of hard texts, component by component.

A case is a base with some of its parts replaced (a JSON merge patch), and what the texts become with it."""
import json

import tokenizers
from tokenizers import Tokenizer

BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
NAMES = {b: chr(b) for b in BYTES}
for byte in range(256):
    NAMES.setdefault(byte, chr(256 + len(NAMES) - len(BYTES)))
SPECIAL = ["<|endoftext|>", "<s>", "</s>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "a a", "aa a", "Ã ©", "1 2", "12 3", "Ġ Ġ"]


def numbered(words):
    return {word: number for number, word in enumerate(dict.fromkeys(words))}


def added(content, number, **flags):
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **usual, **flags}


def bpe():
    vocab = numbered(SPECIAL + [NAMES[b] for b in range(256)] + [m.replace(" ", "") for m in MERGES] + ["Ġhelloworld"])
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": MERGES}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(s, vocab[s]) for s in SPECIAL], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}


def word_piece():
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + list(letters + ".,!?'-()#$+é") + ["##" + c for c in letters]
    words += "hello world un ##aff ##able cafe naive ##ing ##ed the play 日 本 中 ##本 😀 ß ##i̇ ж ##ж ά α don “ ” 。 ！ ᄒ ##ᅡ ##ᆫ 한 straße ##ße İ".split()
    vocab = numbered(words)
    pieces = [("[CLS]", None, 0), (None, "A", 0), ("[SEP]", None, 0), (None, "B", 1), ("[SEP]", None, 1)]
    pieces = [{"SpecialToken": {"id": s, "type_id": t}} if s else {"Sequence": {"id": q, "type_id": t}} for s, q, t in pieces]
    ids = {s: {"id": s, "ids": [vocab[s]], "tokens": [s]} for s in ("[CLS]", "[SEP]")}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(s, vocab[s]) for s in special],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": pieces[:3], "pair": pieces, "special_tokens": ids},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}}


BASES = {"bpe": bpe(), "word_piece": word_piece()}

WORD_PIECE_TEXTS = [
    "Hello, world!", "  unaffable   playing\tplayed\n", "Café naïve CAFÉ cafe\u0301", "日本語 中x日本a", "emoji 😀😀 👍🏽 a😀b",
    "a\u0000b\u0007c\ufffdd\u200be\u00ade", "a\u000bb\u000cc\u0085d\u00a0e\u2028f\u3000g", "x" * 100, "x" * 101, "é" * 100, "", "   ",
    "[CLS] hello [SEP][MASK] [PAD]x", "don't stop! (really?) $5.00 + 3 - #1", "İstanbul ISTANBUL ıI", "Straße STRASSE ß", "ЖЖ жж Ж",
    "ά Άα \u03b1\u0301", "“quoted” – dash—dash", "你好。！", "한국 한", "\u1112\u1161\u11ab", "a^b`c|d~e<f>g=h", "ﬁ ﬀ Ⅷ ½ ² ①",
    "\U0001d400\U0001d518", "a\u0300\u0316\u0301b", "word\u2060joiner \ufeffbom", "e\u0301\u0323", "don ' t do not n't I 'm", "\u0e01\u0e34\u0e19",
    "日本" * 30, "\U0002b820\U0002b920\U0002f800\uf900"]
BPE_TEXTS = [
    "hello world", " hello  world ", "Hello, aaaaa 12345!", "don't WE'LL 'Tis", "café cafe\u0301 \u00e9\u0323", "日本 😀 \u200b", "a\r\n\r\n  b\t\n", "",
    "  ", "<s>hello</s> x<|endoftext|>", "a <s> b", "xTOKx TOK TOK. x TOK", "１２ ½ ² ٣", "x\u180ey\u0085z\u00a0 w", "fi\ufb01 \u212b", "helloworld helloworld"]
PAIRS = [["hello", "the world"], ["", "a"], ["Café 日", "un\u0000affable"]]

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA = QWEN.replace(r"\p{N}| ", r"\p{N}{1,3}| ")


def level(**flags):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **flags}


def split_by(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def in_sequence(*parts):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*parts, level(use_regex=False)]}}


def cases():
    yield "bpe", "the base", {}
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield "bpe", f"normalizer {name}", {"normalizer": {"type": name}}
    yield "bpe", "normalizers in Sequence", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}}
    yield "bpe", "add_prefix_space", {"pre_tokenizer": level(add_prefix_space=True)}
    yield "bpe", "ByteLevel without its pattern", {"pre_tokenizer": level(use_regex=False)}
    yield "bpe", "Qwen's pattern", in_sequence(split_by(QWEN))
    yield "bpe", "Llama's pattern, ignore_merges", {**in_sequence(split_by(LLAMA)), "model": {"ignore_merges": True}}
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield "bpe", f"Split {behavior}", in_sequence(split_by(r"[aeo\s]", behavior))
        yield "bpe", f"Split {behavior}, inverted", in_sequence(split_by(r"\w+", behavior, True))
        yield "bpe", f"Split {behavior} at a string", in_sequence(split_by("l", behavior, False, "String"))
    yield "bpe", "Split at ASCII classes", in_sequence(split_by(r"[[:alpha:]]+|\S"))
    yield "bpe", "digits alone", in_sequence({"type": "Digits", "individual_digits": True})
    yield "bpe", "digits together", in_sequence({"type": "Digits", "individual_digits": False})
    yield "bpe", "merges as pairs", {"model": {"merges": [m.split(" ") for m in MERGES]}}
    token = len(BASES["bpe"]["model"]["vocab"])
    first = BASES["bpe"]["added_tokens"]
    for flags in ({}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}, {"special": False},
                  {"normalized": True, "special": False}):
        patch = {"added_tokens": [*first, added("TOK", token, **flags)]}
        yield "bpe", f"added token {flags}", patch
        yield "bpe", f"added token {flags}, Lowercase", {**patch, "normalizer": {"type": "Lowercase"}}
    yield "bpe", "the longest added token", {"added_tokens": [*first, added("he", BASES["bpe"]["model"]["vocab"]["he"]), added("hello w", token)]}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                         {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    yield "bpe", "ByteLevel afterwards", {"post_processor": byte_level}
    yield "bpe", "ByteLevel and a template", {"post_processor": {"type": "Sequence", "processors": [byte_level, template]}}
    around = {"sep": ["</s>", 2], "cls": ["<s>", 1]}
    yield "bpe", "BertProcessing", {"post_processor": {"type": "BertProcessing", **around}}
    yield "bpe", "RobertaProcessing", {"post_processor": {"type": "RobertaProcessing", **around, "trim_offsets": True, "add_prefix_space": False}}
    yield "bpe", "decoders in Sequence", {"decoder": {"type": "Sequence", "decoders": [level(), {"type": "Fuse"}]}}
    yield "bpe", "no decoder", {"decoder": None}
    characters = numbered(["<unk>", *"helo wrd,", "he", "ll", "hell", "é"])
    for fuse in (False, True):
        model = {"vocab": {**{w: None for w in BASES["bpe"]["model"]["vocab"]}, **characters}, "merges": ["h e", "l l", "he ll"], "unk_token": "<unk>", "fuse_unk": fuse}
        yield "bpe", f"characters, fuse_unk {fuse}", {"pre_tokenizer": None, "decoder": None, "added_tokens": [], "model": model}
    yield "word_piece", "the base", {}
    for flags in ({"lowercase": False}, {"lowercase": False, "strip_accents": True}, {"strip_accents": False, "handle_chinese_chars": False},
                  {"clean_text": False}):
        yield "word_piece", f"normalizer {flags}", {"normalizer": flags}
    yield "word_piece", "short words", {"model": {"max_input_chars_per_word": 5}}
    yield "word_piece", "another prefix", {"model": {"continuing_subword_prefix": "#"}, "decoder": {"prefix": "#"}}
    yield "word_piece", "no cleanup", {"decoder": {"cleanup": False}}


def patched(value, patch):
    if not isinstance(patch, dict) or not isinstance(value, dict):
        return patch
    out = dict(value)
    for key, part in patch.items():
        out[key] = patched(out.get(key), part)
        if part is None and key not in BASES["bpe"]:
            del out[key]
    return out


def main():
    made = []
    for base, name, patch in cases():
        tokenizer = Tokenizer.from_str(json.dumps(patched(BASES[base], patch)))
        rows = []
        for text in WORD_PIECE_TEXTS if base == "word_piece" else BPE_TEXTS:
            plain, special = tokenizer.encode(text, add_special_tokens=False), tokenizer.encode(text)
            decoded = [tokenizer.decode(special.ids, skip_special_tokens=skip) for skip in (False, True)]
            rows.append([text, plain.ids, special.ids, *decoded])
        pairs = [[pair, (e := tokenizer.encode(*pair)).ids, e.type_ids] for pair in PAIRS]
        made.append({"base": base, "name": name, "patch": patch, "texts": rows, "pairs": pairs})
    head = json.dumps({"made_by": f"tokenizers {tokenizers.__version__}", "bases": BASES})
    print(head[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in made) + "\n]}")


main()
