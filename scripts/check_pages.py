"""Opens pages in Chromium at 1280 and 400 pixels and says what does not fit: nothing may be wider than the page, and at 1280
pixels no table, drawing or command may have to be scrolled.

    monosplit report RUN -o report
    python scripts/check_pages.py report/index.html

Needs Chromium (`--chromium NAME` if it has another name).
"""

import argparse
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MEASURE = """<script>
const scrolled = [...document.querySelectorAll('.table, .drawing, pre')].filter((e) => e.scrollWidth > e.clientWidth);
const said = (e) => `${e.className || 'pre'} ${e.scrollWidth} in ${e.clientWidth} pixels (${e.textContent.trim().slice(0, 40)})`;
const beyond = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.title = JSON.stringify({ beyond, scrolled: scrolled.map(said) });
</script>"""
# Chromium's own window is never narrower than 500 pixels; a frame is.
FRAME = """<!doctype html><iframe id="frame" src="page.html" style="width: {width}px; height: 1000px; border: 0"></iframe>
<script>frame.onload = () => {{ document.title = frame.contentDocument.title }}</script>"""


def measured(chromium, page, width):
    """What does not fit, as the page itself says."""
    with tempfile.TemporaryDirectory() as folder:
        text = page.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>")
        pathlib.Path(folder, "page.html").write_text(text, encoding="utf-8")
        frame = pathlib.Path(folder, "frame.html")
        frame.write_text(FRAME.format(width=width), encoding="utf-8")
        line = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
        line += ["--window-size=1400,1000", "--virtual-time-budget=5000", "--dump-dom", frame.as_uri()]
        shown = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", shown, re.S).group(1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--chromium", default="chromium")
    arguments = parser.parse_args()
    failed = False
    for page in arguments.pages:
        for width in (1280, 400):
            found = measured(arguments.chromium, page, width)
            fits = found["beyond"] <= 0 and (width < 1280 or not found["scrolled"])
            failed |= not fits
            print(f"{page} at {width}: {'fits' if fits else found}; {len(found['scrolled'])} parts scroll by themselves")
    sys.exit(failed)


if __name__ == "__main__":
    main()
