"""Small fonts of scripts that the bundled font lacks, and how HarfBuzz sets words in them and in the bundled font.

Needs fontTools and uharfbuzz, and three fonts as Debian installs them (fonts-lohit-deva, fonts-dejavu-core,
fonts-droid-fallback). Writes crates/render/tests/fixtures/fonts.
"""

import argparse
import pathlib

import uharfbuzz as hb
from fontTools import subset
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.qu2cuPen import Qu2CuPen
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.ttLib import TTFont

BUNDLED = "crates/render/fonts/LiberationSans-Regular.ttf"
# File, words, direction and script. The last letter of the Arabic word takes another form than the same letter within it.
CASES = [
    ("bundled", "SplitGrad AVATAR To Wa.", "ltr", "Latn"),
    ("bundled", "Ägyptische Mau e\u0301", "ltr", "Latn"),
    ("bundled", "α≥−→…", "ltr", "Grek"),
    ("bundled", "Русская голубая", "ltr", "Cyrl"),
    ("bundled", "חתול", "rtl", "Hebr"),
    ("devanagari.ttf", "बिल्ली", "ltr", "Deva"),
    ("arabic.ttf", "قطط", "rtl", "Arab"),
    ("han.otf", "猫", "ltr", "Hani"),
]


def letters(file):
    return sorted({c for name, words, _, _ in CASES for c in words if name == file})


def renamed(font, name):
    """Licences ask that changed fonts have another name."""
    for record in list(font["name"].names):
        if record.nameID in (1, 3, 4, 6, 16):
            value = name.replace(" ", "") if record.nameID == 6 else name
            font["name"].setName(value, record.nameID, record.platformID, record.platEncID, record.langID)
    return font


def truetype(source, file, name, out):
    options = subset.Options()
    options.layout_features = ["*"]
    options.hinting = False
    options.name_IDs = [0, 1, 2, 6, 13]
    options.notdef_outline = True
    font = subset.load_font(source, options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(text="".join(letters(file)) + " ")
    subsetter.subset(font)
    font["head"].modified = font["head"].created
    font.recalcTimestamp = False
    subset.save_font(renamed(font, name), str(out / file), options)


def postscript(source, file, name, out):
    """The same letters with PostScript outlines, which this source has not."""
    font = TTFont(source)
    glyphs, cmap = font.getGlyphSet(), font.getBestCmap()
    order = [".notdef"] + [cmap[ord(c)] for c in letters(file)]
    builder = FontBuilder(font["head"].unitsPerEm, isTTF=False)
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap({ord(c): cmap[ord(c)] for c in letters(file)})
    strings = {}
    for glyph in order:
        pen = T2CharStringPen(glyphs[glyph].width, glyphs)
        glyphs[glyph].draw(Qu2CuPen(pen, max_err=2.0, all_cubic=True))
        strings[glyph] = pen.getCharString()
    builder.setupCFF(name.replace(" ", ""), {"FullName": name}, strings, {})
    builder.setupHorizontalMetrics({glyph: (glyphs[glyph].width, 0) for glyph in order})
    builder.setupHorizontalHeader(ascent=font["hhea"].ascent, descent=font["hhea"].descent)
    builder.setupNameTable({"familyName": name, "styleName": "Regular", "psName": name.replace(" ", "")})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    builder.font["head"].created = builder.font["head"].modified = font["head"].created
    builder.font.recalcTimestamp = False
    builder.save(out / file)


def shaped(path, words, direction, script):
    font = hb.Font(hb.Face(hb.Blob.from_file_path(str(path))))
    buffer = hb.Buffer()
    buffer.add_utf8(words.encode())
    buffer.direction, buffer.script = direction, script
    hb.shape(font, buffer)
    glyphs = zip(buffer.glyph_infos, buffer.glyph_positions)
    return ";".join(f"{i.codepoint},{i.cluster},{p.x_advance},{p.x_offset},{p.y_offset}" for i, p in glyphs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fonts", type=pathlib.Path, default="/usr/share/fonts/truetype")
    parser.add_argument("--out", type=pathlib.Path, default="crates/render/tests/fixtures/fonts")
    arguments = parser.parse_args()
    fonts, out = arguments.fonts, arguments.out
    out.mkdir(parents=True, exist_ok=True)
    truetype(fonts / "lohit-devanagari/Lohit-Devanagari.ttf", "devanagari.ttf", "Test Devanagari", out)
    truetype(fonts / "dejavu/DejaVuSans.ttf", "arabic.ttf", "Test Arabic", out)
    postscript(fonts / "droid/DroidSansFallbackFull.ttf", "han.otf", "Test Han", out)
    lines = ["\t".join([file, direction, script, words, shaped(BUNDLED if file == "bundled" else out / file, words, direction, script)])
             for file, words, direction, script in CASES]
    (out / "harfbuzz.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
