"""Puts the tables of reports into docs/src/findings.md, each between two lines that name it.

    monosplit evaluate experiments/pets-small-quick.toml --data pets --store pets-small.sqlite
    monosplit report pets-small.sqlite -o reports/pets-small
    python scripts/write_findings.py reports

A line `<!-- pets-small/comparison.md -->` is followed by that table, up to `<!-- end -->`; tables of reports that are not
there stay as they are.
"""

import re
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent / "docs/src/findings.md"
BLOCK = re.compile(r"(<!-- (\S+\.md) -->\n).*?(<!-- end -->)", re.DOTALL)


def main():
    reports = Path(sys.argv[1])

    def table(found):
        report = reports / found[2]
        return f"{found[1]}\n{report.read_text().strip()}\n\n{found[3]}" if report.exists() else found[0]

    DOCUMENT.write_text(BLOCK.sub(table, DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
