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
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo
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


def chunk(kind, data):
    """A part of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, colour, rows, chunks=b""):
    """The bytes of a PNG, also of kinds that Pillow does not write and of sizes that cannot be."""
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


class Kept:
    """Files of one format, each beside what Pillow makes of it: `convert("RGB")`, as an array."""

    def __init__(self, name, format, ending):
        self.path, self.format, self.ending = folder(name), format, ending

    def keep(self, name, data):
        (self.path / f"{name}.{self.ending}").write_bytes(data)
        np.save(self.path / f"{name}.npy", np.array(Image.open(io.BytesIO(data)).convert("RGB")))

    def save(self, name, image, **options):
        buffer = io.BytesIO()
        image.save(buffer, self.format, **options)
        self.keep(name, buffer.getvalue())
        return buffer.getvalue()


def transparent(image, seed):
    """The image with an alpha channel of noise."""
    alpha = np.random.default_rng(seed).integers(0, 256, (image.height, image.width), dtype=np.uint8)
    image.putalpha(Image.fromarray(alpha))
    return image


def pngs(chelsea):
    kept = Kept("png", "PNG", "png")
    patch = chelsea.crop((200, 100, 200 + 13, 100 + 9))
    rng = np.random.default_rng(4)
    alpha = Image.fromarray(rng.integers(0, 256, (9, 13), dtype=np.uint8))
    rgba, la = patch.convert("RGBA"), patch.convert("LA")
    rgba.putalpha(alpha)
    la.putalpha(alpha)
    kept.save("rgb", patch)
    kept.save("rgba", rgba)
    kept.save("grey", patch.convert("L"))
    kept.save("grey-alpha", la)
    kept.save("black-and-white", patch.convert("1"))
    kept.save("palette", patch.quantize(200))
    kept.save("palette-of-7", patch.quantize(7))
    kept.save("palette-transparent", patch.quantize(16), transparency=3)
    kept.save("palette-translucent", patch.quantize(16), transparency=bytes(range(0, 160, 10)))
    kept.save("grey-transparent", patch.convert("L"), transparency=120)
    kept.save("rgb-transparent", patch, transparency=(1, 2, 3))
    kept.keep("palette-too-short", png(6, 1, 8, 3, b"\0" + bytes([0, 1, 2, 3, 200, 255]), chunk(b"PLTE", bytes([9, 8, 7, 6, 5, 4]))))
    kept.keep("grey-2-bits", png(6, 2, 2, 0, b"\0\x1b\x20\0\xe4\xf0"))
    kept.keep("grey-4-bits", png(3, 2, 4, 0, b"\0\x1b\xf0\0\x52\x80"))
    for name, colour, samples in (("rgb-16", 2, 3), ("grey-alpha-16", 4, 2), ("rgba-16", 6, 4)):
        wide = rng.integers(0, 65536, (5, 4 * samples)).astype(">u2")
        kept.keep(name, png(4, 5, 16, colour, filtered(wide)))
    wide = rng.integers(0, 600, (5, 4)).astype(">u2")
    kept.keep("grey-16", png(4, 5, 16, 0, filtered(wide)))
    kept.keep("grey-16-transparent", png(4, 5, 16, 0, filtered(wide), chunk(b"tRNS", wide[0, :1].tobytes())))


def webps(chelsea):
    kept = Kept("webp", "WEBP", "webp")
    patch = chelsea.crop((150, 60, 150 + 35, 60 + 27))
    rgba = transparent(patch.convert("RGBA"), 6)
    kept.save("lossless", patch, lossless=True)
    kept.save("lossless-alpha", rgba, lossless=True, exact=True)
    kept.save("lossless-palette", patch.quantize(7).convert("RGB"), lossless=True)
    kept.save("lossless-noise", noise(19, 21, 3), lossless=True)
    kept.save("lossy", patch, quality=80)
    kept.save("lossy-even", patch.crop((0, 0, 32, 26)), quality=80)
    kept.save("lossy-large", chelsea.crop((100, 40, 100 + 131, 40 + 117)), quality=75)
    kept.save("lossy-coarse", patch, quality=3)
    kept.save("lossy-fine", patch, quality=100)
    kept.save("lossy-noise", noise(19, 21, 3), quality=90)
    kept.save("lossy-alpha", rgba, quality=80)
    kept.save("lossy-alpha-coarse", rgba, quality=80, alpha_quality=20)
    kept.save("lossy-one-pixel", patch.crop((0, 0, 1, 1)), quality=80)
    kept.save("lossy-narrow", patch.crop((0, 0, 3, 11)), quality=80)
    kept.save("grey", patch.convert("L"), quality=80)
    others = [patch.transpose(Image.Transpose.FLIP_LEFT_RIGHT), patch.rotate(180)]
    kept.save("animation", patch, save_all=True, append_images=others, lossless=True)
    kept.save("animation-lossy", patch, save_all=True, append_images=others, quality=80)
    kept.save("animation-alpha", rgba, save_all=True, append_images=[image.convert("RGBA") for image in others], lossless=True)


def gif_frame(screen, frame, table, indices, control=b"", background=0):
    """A GIF of one frame, placed on a screen: kinds that Pillow does not write. Each code is a literal, with a
    clear code before each so that codes stay three bits wide."""
    width, height = screen
    bits = "".join(format(code, "03b")[::-1] for index in indices for code in (4, index)) + format(5, "03b")[::-1]
    packed = bytes(int(bits[i : i + 8].ljust(8, "0")[::-1], 2) for i in range(0, len(bits), 8))
    data = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x91, background, 0) + bytes(table) + control
    data += b"\x2c" + struct.pack("<HHHHB", *frame, 0) + b"\x02"
    for start in range(0, len(packed), 255):
        part = packed[start : start + 255]
        data += bytes([len(part)]) + part
    return data + b"\0\x3b"


def gifs(chelsea):
    kept = Kept("gif", "GIF", "gif")
    patch = chelsea.crop((150, 60, 150 + 35, 60 + 27))
    kept.save("palette", patch.quantize(200))
    kept.save("interlaced", patch.quantize(64), interlace=1)
    kept.save("not-interlaced", patch.quantize(64), interlace=0)
    kept.save("four-colours", patch.quantize(4))
    kept.save("black-and-white", patch.convert("1"))
    kept.save("grey", patch.convert("L"))
    kept.save("transparent", patch.quantize(16), transparency=3)
    kept.save("from-rgba", transparent(patch.convert("RGBA"), 6))
    others = [patch.transpose(Image.Transpose.FLIP_LEFT_RIGHT), patch.rotate(180)]
    kept.save("animation", patch, save_all=True, append_images=others)
    table = [10, 20, 30, 200, 0, 0, 0, 150, 0, 0, 0, 250]
    control = b"\x21\xf9\x04\x01\0\0\x02\0"
    indices = [0, 1, 2, 3, 3, 1]
    kept.keep("frame-within", gif_frame((5, 4), (1, 1, 3, 2), table, indices, background=1))
    kept.keep("frame-within-transparent", gif_frame((5, 4), (1, 1, 3, 2), table, indices, control, background=1))
    kept.keep("frame-beyond", gif_frame((2, 1), (1, 1, 3, 2), table, indices))


def bmp(width, height, depth, rows, compression=0, masks=b"", palette=b"", colours=0, size=40):
    """A BMP of kinds that Pillow does not write. A negative height counts rows from the top."""
    if size == 12:
        header = struct.pack("<IHHHH", 12, width, height, 1, depth)
    else:
        header = struct.pack("<IiiHHIIiiII", size, width, height, 1, depth, compression, len(rows), 0, 0, colours, 0)
        # Longer headers hold the masks; after the shortest they stand by themselves.
        header = (header + masks).ljust(size, b"\0")
    offset = 14 + len(header) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + header + palette + rows


def bmps(chelsea):
    kept = Kept("bmp", "BMP", "bmp")
    patch = chelsea.crop((150, 60, 150 + 35, 60 + 27))
    rng = np.random.default_rng(11)
    kept.save("rgb", patch)
    kept.save("rgba", transparent(patch.convert("RGBA"), 6))
    kept.save("grey", patch.convert("L"))
    kept.save("black-and-white", patch.convert("1"))
    kept.save("palette", patch.quantize(200))
    palette = rng.integers(0, 256, (16, 4), dtype=np.uint8)
    table = palette.tobytes()
    nibbles = bytes([0x01, 0x23, 0x40, 0, 0x56, 0x78, 0x90, 0, 0xAB, 0xCD, 0xE0, 0])
    kept.keep("16-colours", bmp(5, 3, 4, nibbles, palette=table))
    kept.keep("7-colours", bmp(5, 2, 4, bytes([0x01, 0x23, 0x40, 0, 0x56, 0x10, 0x20, 0]), palette=table[:28], colours=7))
    kept.keep("2-colours", bmp(11, 2, 1, bytes([0xA5, 0x60, 0, 0, 0x3C, 0xE0, 0, 0]), palette=table[:8]))
    kept.keep("os2", bmp(5, 3, 4, nibbles, palette=palette[:, :3].tobytes(), size=12))
    kept.keep("os2-rgb", bmp(2, 2, 24, bytes(range(6)) + b"\0\0" + bytes(range(6, 12)) + b"\0\0", size=12))
    words = rng.integers(0, 65536, (3, 4)).astype("<u2").tobytes()
    kept.keep("16-bits", bmp(4, 3, 16, words))
    kept.keep("16-bits-565", bmp(4, 3, 16, words, 3, struct.pack("<III", 0xF800, 0x7E0, 0x1F)))
    kept.keep("16-bits-555", bmp(4, 3, 16, words, 3, struct.pack("<III", 0x7C00, 0x3E0, 0x1F)))
    wide = rng.integers(0, 256, (3, 16), dtype=np.uint8).tobytes()
    kept.keep("32-bits", bmp(4, 3, 32, wide))
    kept.keep("32-bits-top-down", bmp(4, -3, 32, wide))
    kept.keep("32-bits-masks", bmp(4, 3, 32, wide, 3, struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)))
    kept.keep("32-bits-masks-abgr", bmp(4, 3, 32, wide, 3, struct.pack("<III", 0xFF000000, 0xFF0000, 0xFF00)))
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    kept.keep("32-bits-v4", bmp(4, 3, 32, wide, 3, masks, size=108))
    kept.keep("32-bits-v5", bmp(4, 3, 32, wide, 3, masks, size=124))
    eight = bytes([3, 1, 0, 3, 2, 7, 9, 0, 0, 0, 5, 4, 0, 0, 2, 8, 0, 2, 1, 1, 1, 5, 0, 1])
    kept.keep("rle8", bmp(5, 4, 8, eight, 1, palette=table, colours=16))
    four = bytes([5, 0x12, 0, 0, 0, 4, 0x34, 0x56, 0, 0, 2, 0x78, 0, 2, 1, 1, 2, 0x9A, 0, 1])
    kept.keep("rle4", bmp(5, 4, 4, four, 2, palette=table))


def tiff(width, height, rows, tags, order="<"):
    """A TIFF of one strip of kinds that Pillow does not write: the usual tags, `tags` over them."""
    entries = {256: (4, [width]), 257: (4, [height]), 258: (3, [8]), 259: (3, [1]), 262: (3, [1]), 277: (3, [1])}
    if 324 not in tags:
        entries |= {273: (4, [8]), 278: (4, [height]), 279: (4, [len(rows)])}
    entries |= tags
    body, extra = b"", b""
    start = 8 + len(rows)
    after = start + 2 + 12 * len(entries) + 4
    for tag, (kind, values) in sorted(entries.items()):
        packed = struct.pack(order + {1: "B", 3: "H", 4: "I"}[kind] * len(values), *values)
        if len(packed) > 4:
            place = struct.pack(order + "I", after + len(extra))
            extra += packed
        else:
            place = packed.ljust(4, b"\0")
        body += struct.pack(order + "HHI", tag, kind, len(values)) + place
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, start)
    return head + rows + struct.pack(order + "H", len(entries)) + body + struct.pack(order + "I", 0) + extra


def tiffs(chelsea):
    kept = Kept("tiff", "TIFF", "tif")
    patch = chelsea.crop((150, 60, 150 + 35, 60 + 27))
    rng = np.random.default_rng(12)
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "packbits"):
        kept.save(f"rgb-{compression.removeprefix('tiff_').replace('_', '-')}", patch, compression=compression)
    for compression in ("tiff_lzw", "tiff_adobe_deflate"):
        name = compression.removeprefix("tiff_").replace("_", "-")
        kept.save(f"predictor-{name}", patch, compression=compression, tiffinfo={317: 2})
    kept.save("strips", patch, compression="tiff_lzw", tiffinfo={278: 5})
    kept.save("grey", patch.convert("L"))
    kept.save("grey-alpha", transparent(patch.convert("LA"), 6))
    kept.save("rgba", transparent(patch.convert("RGBA"), 6))
    kept.save("palette", patch.quantize(200))
    kept.save("black-and-white", patch.convert("1"))
    kept.save("cmyk", patch.convert("CMYK"))
    wide = rng.integers(0, 65536, (5, 4), dtype=np.uint16)
    wide[0] = [0, 1, 254, 255]
    kept.save("grey-16", Image.fromarray(wide))
    kept.save("float", Image.fromarray((rng.standard_normal((5, 4)) * 300).astype(np.float32)))
    kept.save("int-32", Image.fromarray(rng.integers(-300, 600, (5, 4), dtype=np.int32)))
    kept.save("pages", patch, save_all=True, append_images=[patch.rotate(180)])
    kept.save("big", patch, big_tiff=True)
    for value in range(1, 9):
        kept.save(f"orientation-{value}", patch.crop((0, 0, 4, 3)), tiffinfo={274: value})
    samples = rng.integers(0, 256, (3, 4), dtype=np.uint8).tobytes()
    kept.keep("white-is-zero", tiff(4, 3, samples, {262: (3, [0])}))
    kept.keep("grey-2-bits", tiff(6, 2, bytes([0x1B, 0x20, 0xE4, 0xF0]), {258: (3, [2])}))
    kept.keep("grey-4-bits", tiff(3, 2, bytes([0x1B, 0xF0, 0x52, 0x80]), {258: (3, [4])}))
    kept.keep("bits-white-is-zero", tiff(11, 2, bytes([0xA5, 0x60, 0x3C, 0xE0]), {258: (3, [1]), 262: (3, [0])}))
    map16 = {258: (3, [4]), 262: (3, [3]), 320: (3, [int(v) for v in rng.integers(0, 65536, 48)])}
    kept.keep("palette-4-bits", tiff(3, 2, bytes([0x1B, 0xF0, 0x52, 0x80]), map16))
    wide = rng.integers(0, 65536, (5, 12))
    colours = {258: (3, [16] * 3), 262: (3, [2]), 277: (3, [3])}
    kept.keep("rgb-16", tiff(4, 5, wide.astype("<u2").tobytes(), colours))
    kept.keep("rgb-16-big-endian", tiff(4, 5, wide.astype(">u2").tobytes(), colours, ">"))
    kept.keep("grey-16-big-endian", tiff(4, 5, wide[:, :4].astype(">u2").tobytes(), {258: (3, [16])}, ">"))
    rgbx = rng.integers(0, 256, (3, 16), dtype=np.uint8).tobytes()
    for extra, name in ((0, "rgbx"), (1, "rgba-premultiplied"), (2, "rgba-straight")):
        tags = {258: (3, [8] * 4), 262: (3, [2]), 277: (3, [4]), 338: (3, [extra])}
        kept.keep(name, tiff(4, 3, rgbx, tags))
    planes = {258: (3, [8] * 3), 262: (3, [2]), 277: (3, [3]), 284: (3, [2])}
    data = rng.integers(0, 256, (3, 3, 4), dtype=np.uint8).tobytes()
    planes |= {273: (4, [8, 20, 32]), 279: (4, [12, 12, 12])}
    kept.keep("planes", tiff(4, 3, data, planes))
    tile = rng.integers(0, 256, (4, 16, 16, 3), dtype=np.uint8).tobytes()
    tiles = {258: (3, [8] * 3), 262: (3, [2]), 277: (3, [3]), 322: (4, [16]), 323: (4, [16])}
    tiles |= {324: (4, [8 + 768 * i for i in range(4)]), 325: (4, [768] * 4)}
    data = tiff(21, 18, tile, tiles)
    kept.keep("tiles", data)


def pnms(chelsea):
    kept = Kept("pnm", "PPM", "pnm")
    patch = chelsea.crop((150, 60, 150 + 13, 60 + 9))
    rng = np.random.default_rng(13)
    kept.save("rgb", patch)
    kept.save("grey", patch.convert("L"))
    kept.save("black-and-white", patch.convert("1"))
    kept.keep("plain-rgb", b"P3\n# a remark\n2 2 # another\n255\n1 2 3 40 50 60\n255 0 7 # and one\n8 9 10\n")
    kept.keep("plain-grey", b"P2 3 1 100 0 50 100")
    kept.keep("plain-black-and-white", b"P1\n5 2\n10110\n0 1 0 0 1\n")
    kept.keep("rgb-of-15", b"P6 2 1 15\n" + bytes([0, 1, 7, 8, 14, 15]))
    kept.keep("grey-of-100", b"P5 4 1 100\n" + bytes([0, 33, 50, 100]))
    kept.keep("grey-of-1000", b"P5 4 1 1000\n" + np.array([0, 2, 500, 1000], dtype=">u2").tobytes())
    wide = rng.integers(0, 65536, (3, 4)).astype(">u2")
    kept.keep("grey-16", b"P5 4 3 65535\n" + wide.tobytes())
    wide = rng.integers(0, 65536, (3, 12)).astype(">u2")
    kept.keep("rgb-16", b"P6 4 3 65535\n" + wide.tobytes())
    kept.keep("plain-grey-16", b"P2 3 1 65535 0 255 40000\n")
    kept.keep("too-much", b"P5 2 1 255\n" + bytes([1, 2, 3, 4]))


def orientations(chelsea):
    """Pictures that are stored turned, each beside what `ImageOps.exif_transpose` makes of it."""
    path = folder("orientation")
    patch = chelsea.crop((150, 60, 150 + 21, 60 + 13))

    def keep(name, data):
        (path / name).write_bytes(data)
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        np.save((path / name).with_suffix(".npy"), np.array(upright.convert("RGB")))

    def saved(format, **options):
        buffer = io.BytesIO()
        patch.save(buffer, format, **options)
        return buffer.getvalue()

    for value in range(10):
        keep(f"jpeg-{value}.jpg", saved("JPEG", exif=orientation(value)))
        keep(f"png-{value}.png", saved("PNG", exif=orientation(value)))
        keep(f"webp-{value}.webp", saved("WEBP", lossless=True, exif=orientation(value)))
        if 1 <= value <= 8:
            keep(f"tiff-{value}.tif", saved("TIFF", compression="tiff_lzw", tiffinfo={274: value}))
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>'
    element = b"<x:xmpmeta><tiff:Orientation>%d</tiff:Orientation></x:xmpmeta>"
    keep("jpeg-xmp.jpg", saved("JPEG", xmp=xmp % 6))
    keep("jpeg-xmp-element.jpg", saved("JPEG", xmp=element % 8))
    keep("jpeg-exif-over-xmp.jpg", saved("JPEG", xmp=xmp % 6, exif=orientation(3)))
    keep("webp-xmp.webp", saved("WEBP", lossless=True, xmp=xmp % 6))
    text = PngInfo()
    text.add_itxt("XML:com.adobe.xmp", (xmp % 5).decode())
    keep("png-xmp.png", saved("PNG", pnginfo=text))
    # The other byte order, and a number of 32 bits.
    block = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHIHH", 274, 3, 1, 6, 0) + b"\0\0\0\0"
    keep("jpeg-big-endian.jpg", saved("JPEG", exif=block))
    block = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", 274, 4, 1, 7) + b"\0\0\0\0"
    keep("jpeg-32-bits.jpg", saved("JPEG", exif=block))
    stored = saved("PNG")
    late = stored[: stored.index(b"IEND") - 4] + chunk(b"eXIf", orientation(8).tobytes()[6:]) + chunk(b"IEND", b"")
    keep("png-exif-at-the-end.png", late)


def backgrounds():
    """Transparent pictures, pasted on a colour."""
    path = folder("background")
    for name in (
        "png/rgba.png",
        "png/grey-alpha.png",
        "png/palette-transparent.png",
        "png/palette-translucent.png",
        "png/grey-transparent.png",
        "png/rgb-transparent.png",
        "png/grey-16-transparent.png",
        "png/rgb.png",
        "webp/lossless-alpha.webp",
        "webp/lossy-alpha.webp",
        "gif/transparent.gif",
        "gif/frame-within-transparent.gif",
        "bmp/32-bits-v4.bmp",
        "bmp/32-bits.bmp",
        "tiff/rgba.tif",
        "tiff/grey-alpha.tif",
        "tiff/rgba-premultiplied.tif",
    ):
        image = Image.open(ROOT / name).convert("RGBA")
        ground = Image.new("RGB", image.size, (200, 30, 90))
        ground.paste(image, mask=image)
        np.save(path / f"{name.replace('/', '-')}.npy", np.array(ground))


def sources(chelsea):
    noise(37, 23, 1).save(ROOT / "noise.png")
    noise(1, 1, 2).save(ROOT / "dot.png")
    noise(1, 29, 5).save(ROOT / "line.png")
    noise(3000, 2, 7).save(ROOT / "sliver.png")
    noise(3000, 2, 7).rotate(90, expand=True).save(ROOT / "upright-sliver.png")
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
    sliver = Image.open(ROOT / "sliver.png")
    save("sliver", sliver, T.Resize(23), T.CenterCrop(20), T.ToTensor(), imagenet)
    save("sliver-bicubic", sliver.rotate(90, expand=True), bicubic, T.CenterCrop(20), T.ToTensor(), imagenet)
    save("raw", Image.open(ROOT / "line.png"), T.PILToTensor(), T.Lambda(lambda t: t.float()))


def bad_pictures(chelsea, path):
    """Truncated, absurd and unsupported files of the other formats."""
    patch = chelsea.crop((150, 60, 150 + 35, 60 + 27))

    def saved(format, image=patch, **options):
        buffer = io.BytesIO()
        image.save(buffer, format, **options)
        return buffer.getvalue()

    (path / "signature-only.webp").write_bytes(b"RIFF\x04\0\0\0WEBP")
    (path / "signature-only.gif").write_bytes(b"GIF89a")
    (path / "signature-only.bmp").write_bytes(b"BM")
    (path / "signature-only.tif").write_bytes(b"II*\0")
    (path / "signature-only.pnm").write_bytes(b"P6\n")
    # Half a gigabyte out of a handful of bytes.
    riff = bytearray(saved("WEBP", Image.new("RGB", (1, 1)), lossless=True))
    riff[21:25] = struct.pack("<I", (16383 - 1) | (8000 - 1) << 14)
    (path / "bomb.webp").write_bytes(riff)
    (path / "bomb.gif").write_bytes(gif_frame((19999, 6000), (0, 0, 19999, 6000), [0] * 12, [0, 1]))
    (path / "bomb.bmp").write_bytes(bmp(19999, 6000, 8, b"\0\1", 1, palette=b"\0" * 64, colours=16))
    data = zlib.compress(b"\0" * 100)
    rgb = {258: (3, [8] * 3), 259: (3, [8]), 262: (3, [2]), 277: (3, [3])}
    (path / "bomb.tif").write_bytes(tiff(19999, 6000, data, rgb))
    tiles = {322: (4, [16]), 323: (4, [2**20]), 324: (4, [8]), 325: (4, [len(data)])}
    (path / "bomb-of-one-tile.tif").write_bytes(tiff(16, 16, data, rgb | tiles))
    tiles = {322: (4, [1]), 323: (4, [1]), 324: (4, [8]), 325: (4, [len(data)])}
    (path / "many-tiles.tif").write_bytes(tiff(600, 600, data, rgb | tiles))
    (path / "bomb.pnm").write_bytes(b"P6 19999 6000 255\n\0")
    (path / "huge.bmp").write_bytes(bmp(2**31 - 1, 2**31 - 1, 24, b"\0" * 10))
    (path / "huge.tif").write_bytes(tiff(2**32 - 1, 2**32 - 1, b"\0" * 10, {}))
    (path / "huge.pnm").write_bytes(b"P5 9999999999 9999999999 255\n\0")
    (path / "long-number.pnm").write_bytes(b"P5 99999999999 1 255\n\0")
    (path / "zero-width.pnm").write_bytes(b"P5 0 3 255\n\0")
    (path / "value-too-large.pnm").write_bytes(b"P2 1 1 7 8\n")
    (path / "neither-0-nor-1.pnm").write_bytes(b"P1 2 1 1 2\n")
    (path / "odd-header.bmp").write_bytes(b"BM" + struct.pack("<IHHII", 99, 0, 0, 54, 41) + b"\0" * 80)
    (path / "odd-masks.bmp").write_bytes(bmp(1, 1, 32, b"\0" * 4, 3, struct.pack("<III", 0x3FF, 0xFFC00, 0x3FF00000)))
    (path / "too-few-rows.bmp").write_bytes(saved("BMP")[:-200])
    (path / "too-few-rows.gif").write_bytes(saved("GIF", patch.quantize(64))[:-300])
    (path / "too-few-rows.webp").write_bytes(saved("WEBP")[:-300])
    (path / "too-few-rows.tif").write_bytes(tiff(4, 3, b"\0" * 11, {}))
    (path / "no-frame.gif").write_bytes(b"GIF89a" + struct.pack("<HHBBB", 2, 1, 0, 0, 0) + b";")
    (path / "fax.tif").write_bytes(saved("TIFF", patch.convert("1"), compression="group4"))
    (path / "holds-a-jpeg.tif").write_bytes(saved("TIFF", compression="jpeg"))
    (path / "lab.tif").write_bytes(tiff(1, 1, b"\0" * 3, {258: (3, [8] * 3), 262: (3, [8]), 277: (3, [3])}))
    (path / "no-palette.tif").write_bytes(tiff(2, 1, b"\0\1", {262: (3, [3])}))
    (path / "directory-outside.tif").write_bytes(b"II*\0\xff\xff\xff\x7f")
    (path / "many-tags.tif").write_bytes(b"II*\0\x08\0\0\0\xff\xff" + b"\0" * 40)
    (path / "no-strips.tif").write_bytes(tiff(4, 3, b"\0" * 12, {278: (4, [1])}))


def bad_files(chelsea):
    path = folder("bad")
    bad_pictures(chelsea, path)
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
    webps(cat)
    gifs(cat)
    bmps(cat)
    tiffs(cat)
    pnms(cat)
    orientations(cat)
    backgrounds()
    sources(cat)
    tensors(cat)
    bad_files(cat)
