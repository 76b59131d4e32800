"""Makes the golden files of crates/image/tests/fixtures with Pillow, torchvision and numpy.

Run from the root of the repository, with the photograph already in crates/monosplit/assets:

    python scripts/make_image_fixtures.py

Only the JPEGs of unusual subsampling need simplejpeg; without it they are left as they are.
"""

import io
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode

ROOT = Path("crates/image/tests/fixtures")
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def folder(name, fresh=True):
    path = ROOT / name
    if fresh and path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def noise(width, height, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def png(width, height, depth, colour, rows, chunks=b""):
    """The bytes of a PNG, also of kinds that Pillow does not write and of sizes that cannot be."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunks + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def filtered(samples):
    """Rows of big-endian samples, each with filter type 0."""
    return b"".join(b"\0" + row.tobytes() for row in samples)


def jpegs(chelsea):
    path = folder("jpeg", fresh=False)
    patch = chelsea.crop((150, 60, 150 + 35, 60 + 27))

    def keep(name, data):
        (path / f"{name}.jpg").write_bytes(data)
        Image.open(io.BytesIO(data)).convert("RGB").save(path / f"{name}.png")

    def save(name, image, **options):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", **options)
        keep(name, buffer.getvalue())
        return buffer.getvalue()

    for subsampling in (0, 1, 2):
        for progressive in (False, True):
            name = f"{('444', '422', '420')[subsampling]}-{'progressive' if progressive else 'baseline'}"
            save(name, patch, subsampling=subsampling, progressive=progressive, quality=88)
    save("coarse", patch, quality=8)
    save("noise", noise(19, 21, 3), quality=97, subsampling=2, progressive=True)
    save("restarts", patch, subsampling=2, restart_marker_blocks=2)
    save("grey", patch.convert("L"))
    save("grey-progressive", patch.convert("L"), progressive=True)
    save("rgb", patch, keep_rgb=True)
    save("one-pixel", patch.crop((0, 0, 1, 1)), subsampling=2)
    save("narrow", patch.crop((0, 0, 3, 11)), subsampling=2)
    save("turned-by-exif", patch.crop((0, 0, 20, 10)), exif=orientation(6))
    inks = bytearray(save("cmyk", patch.convert("CMYK")))
    inks[inks.find(b"Adobe") + 11] = 2
    keep("ycck", bytes(inks))
    try:
        import simplejpeg
    except ImportError:
        print("no simplejpeg: the 4:4:0 and 4:1:1 files stay as they are")
        return
    for subsampling in ("440", "411"):
        keep(subsampling, simplejpeg.encode_jpeg(np.array(patch), quality=85, colorsubsampling=subsampling))


def orientation(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def pngs(chelsea):
    path = folder("png")
    patch = chelsea.crop((200, 100, 200 + 13, 100 + 9))
    rng = np.random.default_rng(4)
    alpha = Image.fromarray(rng.integers(0, 256, (9, 13), dtype=np.uint8))
    rgba, la = patch.convert("RGBA"), patch.convert("LA")
    rgba.putalpha(alpha)
    la.putalpha(alpha)

    def keep(name, data, expected=None):
        (path / f"{name}.png").write_bytes(data)
        if expected is None:
            expected = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
        np.save(path / f"{name}.npy", expected)

    def save(name, image, **options):
        buffer = io.BytesIO()
        image.save(buffer, "PNG", **options)
        keep(name, buffer.getvalue())

    save("rgb", patch)
    save("rgba", rgba)
    save("grey", patch.convert("L"))
    save("grey-alpha", la)
    save("black-and-white", patch.convert("1"))
    save("palette", patch.quantize(200))
    save("palette-of-7", patch.quantize(7))
    save("palette-transparent", patch.quantize(16), transparency=3)
    save("grey-transparent", patch.convert("L"), transparency=120)
    save("rgb-transparent", patch, transparency=(1, 2, 3))
    keep("grey-2-bits", png(6, 2, 2, 0, b"\0\x1b\x20\0\xe4\xf0"))
    keep("grey-4-bits", png(3, 2, 4, 0, b"\0\x1b\xf0\0\x52\x80"))
    for name, colour, samples in (("rgb-16", 2, 3), ("grey-alpha-16", 4, 2), ("rgba-16", 6, 4)):
        wide = rng.integers(0, 65536, (5, 4 * samples)).astype(">u2")
        keep(name, png(4, 5, 16, colour, filtered(wide)))
    # Pillow clips 16-bit grey at 255; the high byte is what it takes of 16-bit colour.
    wide = rng.integers(0, 65536, (5, 4)).astype(">u2")
    keep("grey-16", png(4, 5, 16, 0, filtered(wide)), np.repeat((wide >> 8).astype(np.uint8)[..., None], 3, 2))


def sources(chelsea):
    noise(37, 23, 1).save(ROOT / "noise.png")
    noise(1, 1, 2).save(ROOT / "dot.png")
    noise(1, 29, 5).save(ROOT / "line.png")
    names = {"noise": [(11, 50), (36, 22), (37, 7), (9, 23), (45, 29), (45, 9), (33, 14), (33, 15), (1, 1), (2, 3)]}
    names["dot"] = [(1, 1), (5, 3)]
    names["line"] = [(1, 10), (4, 29), (3, 40)]
    names["chelsea"] = [(25, 16)]
    path = folder("resize")
    for name, sizes in names.items():
        image = chelsea if name == "chelsea" else Image.open(ROOT / f"{name}.png")
        for filter_name, resampling in FILTERS.items():
            for width, height in sizes:
                scaled = image.resize((width, height), resampling)
                scaled.save(path / f"{name}-{filter_name}-{width}x{height}.png")
    path = folder("crop")
    sizes = [(30, 20), (32, 18), (36, 22), (37, 23), (40, 30), (38, 24), (40, 10), (11, 28), (1, 1)]
    for width, height in sizes:
        cropped = T.CenterCrop((height, width))(Image.open(ROOT / "noise.png"))
        cropped.save(path / f"noise-{width}x{height}.png")


def tensors(chelsea):
    path = folder("tensor")
    imagenet = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    caffe = [T.PILToTensor(), T.Lambda(lambda t: t.float()[[2, 1, 0]]), T.Normalize([103.939, 116.779, 123.68], [1.0] * 3)]
    noisy = Image.open(ROOT / "noise.png")

    def save(name, image, *steps, every=1):
        tensor = T.Compose(steps)(image).unsqueeze(0)
        assert tensor.dtype == torch.float32
        values = np.array(tensor.numpy(), order="C")
        np.save(path / f"{name}.npy", values if every == 1 else values.ravel()[::every])

    save("imagenet-every-97th", chelsea, T.Resize(256), T.CenterCrop(224), T.ToTensor(), imagenet, every=97)
    save("imagenet-20", chelsea, T.Resize(23), T.CenterCrop(20), T.ToTensor(), imagenet)
    save("imagenet-padded", noisy, T.Resize(12), T.CenterCrop((16, 15)), T.ToTensor(), imagenet)
    save("imagenet-bgr-20", chelsea, T.Resize(23), T.CenterCrop(20), *caffe)
    bicubic = T.Resize(23, interpolation=InterpolationMode.BICUBIC)
    save("unit-bicubic-20", chelsea, bicubic, T.CenterCrop(20), T.ToTensor())
    save("squash-17x24", chelsea, T.Resize((17, 24)), T.ToTensor(), imagenet)
    save("grey-28", chelsea.convert("L"), T.Resize((28, 28)), T.ToTensor(), T.Normalize([0.1307], [0.3081]))
    save("raw", Image.open(ROOT / "line.png"), T.PILToTensor(), T.Lambda(lambda t: t.float()))


def bad_files():
    path = folder("bad")
    (path / "empty.png").write_bytes(b"")
    (path / "text.jpg").write_text("This is not a picture.\n")
    (path / "signature-only.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (path / "signature-only.jpg").write_bytes(b"\xff\xd8\xff")
    (path / "huge.png").write_bytes(png(2**31 - 1, 2**31 - 1, 8, 2, b"\0" * 10))
    (path / "beyond-memory.png").write_bytes(png(19999, 19999, 8, 2, b"\0" * 10))
    (path / "zero-width.png").write_bytes(png(0, 5, 8, 2, b"\0" * 5))
    (path / "no-palette.png").write_bytes(png(2, 1, 8, 3, b"\0\1\2"))
    (path / "too-few-rows.png").write_bytes(png(4, 4, 8, 0, b"\0\1\2\3\4"))
    jpeg = bytearray((ROOT / "jpeg/grey.jpg").read_bytes())
    size = jpeg.find(b"\xff\xc0") + 5
    for name, (height, width) in {
        "huge": (65535, 65535),
        "beyond-memory": (19999, 19999),
        "zero-height": (0, 35),
        "too-few-rows": (800, 35),
    }.items():
        jpeg[size : size + 4] = struct.pack(">HH", height, width)
        (path / f"{name}.jpg").write_bytes(jpeg)
    jpeg = bytearray((ROOT / "jpeg/grey.jpg").read_bytes())
    jpeg[jpeg.find(b"\xff\xc0") + 1] = 0xC9
    (path / "arithmetic.jpg").write_bytes(jpeg)


if __name__ == "__main__":
    torch.set_num_threads(2)
    # The pixels alone: a copy of the colour profile in every file would weigh more than they do.
    cat = Image.fromarray(np.array(Image.open(ROOT / "../../../monosplit/assets/chelsea.png").convert("RGB")))
    jpegs(cat)
    pngs(cat)
    sources(cat)
    tensors(cat)
    bad_files()
