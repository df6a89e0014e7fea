#!/usr/bin/env bash
# corpus.sh DIR: the text of this benchmark, from Debian's packages: C of linux-source-6.1 to train a model on (DIR/c), Java of
# openjdk-17-source to adapt it to (DIR/java). Nothing of it is part of the repository.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: corpus.sh DIR" >&2; exit 2; }
mkdir -p "$1" && cd "$1"
[ -f linux.deb ] || { apt-get download linux-source-6.1 && mv linux-source-6.1_*.deb linux.deb; }
[ -f java.deb ] || { apt-get download openjdk-17-source && mv openjdk-17-source_*.deb java.deb; }
rm -rf c java unpacked && mkdir -p c/train c/val java/train java/val unpacked
dpkg-deb --fsys-tarfile linux.deb | tar -xO ./usr/src/linux-source-6.1.tar.xz |
  tar -xJ -C unpacked --wildcards 'linux-source-6.1/kernel/*.c' 'linux-source-6.1/fs/*.c' 'linux-source-6.1/mm/*.c' 'linux-source-6.1/net/*.c' \
    'linux-source-6.1/block/*.c' 'linux-source-6.1/lib/*.c'
dpkg-deb --fsys-tarfile java.deb | tar -xO ./usr/lib/jvm/openjdk-17/lib/src.zip > unpacked/src.zip
python3 - <<'PYTHON'
import hashlib, pathlib, zipfile
def put(kind, name, text):  # a twentieth by name is held out; comments at the head of every file, licences, are left out
    text = text.split("*/", 1)[-1].lstrip() if text.lstrip().startswith("/*") else text
    held = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 20 == 0
    pathlib.Path(kind, "val" if held else "train", name.replace("/", "_")).write_text(text)
for path in sorted(pathlib.Path("unpacked/linux-source-6.1").rglob("*.c")):
    try: put("c", str(path.relative_to("unpacked/linux-source-6.1")), path.read_bytes().decode())
    except UnicodeDecodeError: pass
with zipfile.ZipFile("unpacked/src.zip") as archive:
    for name in sorted(archive.namelist()):
        if name.startswith(("java.base/java/util/", "java.base/java/lang/", "java.base/java/io/", "java.base/java/net/", "java.base/java/time/")) and name.endswith(".java"):
            try: put("java", name, archive.read(name).decode())
            except UnicodeDecodeError: pass
PYTHON
rm -rf unpacked
du -sh c java
