"""The command line: ``python -m monosplit explain network.onnx photo.jpg``."""

import sys

from ._monosplit import run_command


def main() -> int:
    """Runs the program and returns its exit status."""
    return run_command(["monosplit", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
