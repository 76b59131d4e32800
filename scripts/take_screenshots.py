"""Takes the screenshots of the demo's page that the documentation shows, in Chromium, at 1280 and 400 pixels.

    cargo build --release -p monosplit-cli
    python scripts/take_screenshots.py --binary target/release/monosplit --out docs/src/images

Needs Chromium (`--chromium NAME` if it has another name) and Pillow, which stores the pictures with 256 colours.
"""

import argparse
import pathlib
import re
import subprocess
import tempfile

from PIL import Image, ImageChops

WIDTHS = (1280, 400)
MARGIN = 64
MEASURE = "<script>document.title = 'height ' + document.documentElement.scrollHeight</script>"


def chromium(arguments: argparse.Namespace, width: int, height: int, *more: str) -> str:
    line = [arguments.chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    line += [f"--window-size={width},{height}", *more]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path("target/release/monosplit"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/src/images"))
    parser.add_argument("--chromium", default="chromium")
    arguments = parser.parse_args()
    binary, out = arguments.binary.resolve(), arguments.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([binary, "demo", "--quiet"], cwd=folder, check=True, capture_output=True)
        page = pathlib.Path(folder, "demo", "index.html")
        measured = page.with_name("measured.html")
        measured.write_text(page.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>"), encoding="utf-8")
        for width in WIDTHS:
            found = re.search(r"<title>height (\d+)", chromium(arguments, width, 800, "--dump-dom", measured.as_uri()))
            # Chromium lays a page out for at least 500 pixels while it is measured: a narrower page is longer.
            height = 2 * int(found.group(1))
            shot = pathlib.Path(folder, "shot.png")
            chromium(arguments, width, height, f"--screenshot={shot}", page.as_uri())
            picture = Image.open(shot).convert("RGB")
            assert picture.size == (width, height), picture.size
            end = ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox()[3]
            assert end < height - MARGIN, "the page is longer than the screenshot"
            picture = picture.crop((0, 0, width, end + MARGIN))
            colours = picture.quantize(256, method=Image.Quantize.FASTOCTREE)
            picture.quantize(palette=colours, dither=Image.Dither.FLOYDSTEINBERG).save(out / f"demo-{width}.png", optimize=True)
            print(out / f"demo-{width}.png", picture.size)


if __name__ == "__main__":
    main()
