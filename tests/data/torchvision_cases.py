"""Writes what torchvision makes of random images into a folder: cases.jsonl, one operation per line, and images as raw files
(width and height as int32, then RGB pixels; .f32 for normalized values). Exits with 77 where torchvision is not installed."""
import json
import math
import pathlib
import sys
import types

try:
    import numpy as np
    import torch
    import torchvision.transforms as T
    import torchvision.transforms.functional as F
    from PIL import Image
except ImportError:
    sys.exit(77)

FOLDER = pathlib.Path(sys.argv[1])
RNG = np.random.default_rng(0)
CASES = []
MASK = (1 << 64) - 1


def save(image):
    name = f"{len(list(FOLDER.glob('*.raw')))}.raw"
    pixels = np.asarray(image.convert("RGB"))
    (FOLDER / name).write_bytes(np.array([pixels.shape[1], pixels.shape[0]], np.int32).tobytes() + pixels.tobytes())
    return name


def case(op, image, args, result):
    CASES.append({"op": op, "in": save(image), "args": args, "out": save(result)})


def picture(width, height, smooth):
    """Noise, or something with edges and gradients as photographs have them."""
    if not smooth:
        return Image.fromarray(RNG.integers(0, 256, (height, width, 3), dtype=np.uint8))
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 127 * np.sin(x / (3 + c) + y / (5 - c)) * ((x // 7 + y // 9) % 2) for c in range(3)]
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


def scramble(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Stream:
    """epipe's random numbers of one key, handed to torchvision in place of torch's."""

    def __init__(self, key):
        self.key, self.drawn = key, 0

    def unit(self):
        bits = scramble(scramble((self.key + 0x9E3779B97F4A7C15) & MASK) ^ self.drawn)
        self.drawn += 1
        return (bits >> 11) * 2.0 ** -53

    def torch(self):
        number = lambda value: types.SimpleNamespace(item=lambda: value)
        uniform = lambda low, high: number(low + (high - low) * self.unit())
        return types.SimpleNamespace(
            empty=lambda n: types.SimpleNamespace(uniform_=uniform), tensor=lambda values: values, log=lambda values: [math.log(v) for v in values],
            exp=lambda value: number(math.exp(value.item())), randint=lambda low, high, size: number(low + int(self.unit() * (high - low))),
            Tensor=torch.Tensor)


def parameters(key, width, height):
    module = sys.modules["torchvision.transforms.transforms"]
    image = Image.new("RGB", (width, height))
    real, module.torch = module.torch, Stream(key).torch()
    try:
        resized = T.RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3))
    finally:
        module.torch = real
    CASES.append({"op": "random_resized_crop", "key": key, "size": [width, height], "box": [int(v) for v in resized]})


for smooth in (False, True):
    for width, height in ((32, 32), (57, 43), (43, 57), (300, 200), (5, 7)):
        image = picture(width, height, smooth)
        for target in ((224, 224), (32, 32), (16, 40), (width, 19), (19, height), (1, 1)):
            case("resize", image, list(target), F.resize(image, (target[1], target[0])))
        for size in (8, 32, 57, 256):
            case("resize_shorter", image, [size], T.Resize(size)(image))
            case("center_crop", image, [size], T.CenterCrop(size)(image))
        case("flip", image, [], F.hflip(image))
        case("pad", image, [4, 4, 4, 4], F.pad(image, 4))
        case("pad", image, [1, 2, 3, 4], F.pad(image, [1, 2, 3, 4]))
        case("crop", image, [1, 2, 3, 3], F.crop(image, 1, 2, 3, 3))
        case("resized_crop", image, [1, 0, 4, 5, 24], F.resized_crop(image, 1, 0, 4, 5, [24, 24]))
        case("evaluation", image, [56], T.Compose([T.Resize(64), T.CenterCrop(56)])(image))
for k in range(400):
    parameters(int(RNG.integers(0, 1 << 63)), *((640, 480), (32, 32), (30, 500), (500, 30), (1, 1))[k % 5])

image = picture(57, 43, True)
normalized = T.Compose([T.ToTensor(), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])(image)
(FOLDER / "normalized.f32").write_bytes(normalized.numpy().tobytes())
CASES.append({"op": "normalize", "in": save(image), "out": "normalized.f32"})

for name, kind, options in (("rgb", "RGB", {}), ("progressive", "RGB", {"progressive": True, "quality": 60}),
                            ("full", "RGB", {"subsampling": 0}), ("grey", "L", {}), ("cmyk", "CMYK", {})):
    path = FOLDER / f"{name}.jpg"
    picture(61, 45, True).convert(kind).save(path, **options)
    CASES.append({"op": "decode", "file": path.name, "out": save(Image.open(path))})
for name, kind in (("rgb", "RGB"), ("grey", "L"), ("palette", "P"), ("alpha", "RGBA")):
    path = FOLDER / f"{name}.png"
    source = picture(31, 22, True).convert(kind)
    if kind == "RGBA":
        source.putalpha(Image.fromarray(RNG.integers(0, 256, (22, 31), dtype=np.uint8)))
    source.save(path)
    CASES.append({"op": "decode", "file": path.name, "out": save(Image.open(path))})

(FOLDER / "cases.jsonl").write_text("".join(json.dumps(c) + "\n" for c in CASES))
