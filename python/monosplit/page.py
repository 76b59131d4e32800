"""The explorer's page: ``monosplit serve`` as a process of its own, shown in a notebook's frame."""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
import urllib.parse
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Any

Picture = str | os.PathLike[str] | bytes


class ServedPage:
    """The explorer with a network behind it. In a notebook it shows itself; ``with`` and :meth:`stop` end it."""

    def __init__(
        self, arguments: Sequence[str], folder: tempfile.TemporaryDirectory[str], height: int, chosen: Mapping[str, str] = {}
    ) -> None:
        self._height = height
        self._process = subprocess.Popen(
            [sys.executable, "-m", "monosplit", "--quiet", "serve", "--attached", *arguments],
            # It ends with this end of the pipe, and so with this process, whatever becomes of it.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # An interrupted cell does not end it.
            start_new_session=True,
        )
        self._stop = weakref.finalize(self, _end, self._process, folder)
        assert self._process.stdout is not None and self._process.stderr is not None
        self.address: str = self._process.stdout.readline().strip()
        """Where the page is. Whoever knows it on this machine can use it."""
        if not self.address:
            said = self._process.stderr.read().strip()
            self.stop()
            raise ValueError(said.removeprefix("monosplit: ") or "the server did not start")
        if chosen:
            self.address += "#" + urllib.parse.urlencode(chosen)

    def stop(self) -> None:
        """Ends the server."""
        self._stop()

    def __enter__(self) -> ServedPage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<ServedPage {self.address if self._stop.alive else 'stopped'}>"

    def _repr_html_(self) -> str:
        address = html.escape(self.address, quote=True)
        return f'<iframe src="{address}" width="100%" height="{self._height}" style="border: 0"></iframe>'


def _end(process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str]) -> None:
    process.terminate()
    process.wait()
    streams: list[IO[str] | None] = [process.stdin, process.stdout, process.stderr]
    for stream in streams:
        if stream is not None:
            stream.close()
    folder.cleanup()


def serve(
    source: dict[str, Any],
    options: dict[str, Any],
    name: str,
    pictures: Sequence[Picture],
    port: int,
    height: int,
    chosen: Mapping[str, str] = {},
) -> ServedPage:
    """The page for a network and pictures, with what was chosen on it; what is in memory is written to a folder that goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="monosplit-")

    def written(data: bytes, file: str) -> str:
        path = os.path.join(folder.name, file)
        with open(path, "wb") as out:
            out.write(data)
        return path

    arguments = ["--port", str(port)]
    for option in ("input_shape", "output", "threads"):
        value = options.get(option)
        if value:
            text = ",".join(map(str, value)) if option == "input_shape" else str(value)
            arguments += [f"--{option.replace('_', '-')}", text]
    engine, _, number = str(options.get("device", "cpu")).partition(":")
    arguments += ["--engine", engine]
    if number:
        arguments += ["--device", number]
    if "data" in source:
        stem = os.path.basename(name).removesuffix(".onnx") or "network"
        arguments.append(written(source["data"], f"{stem}.onnx"))
    elif source.get("arch"):
        arguments += ["--arch", source["arch"], "--weights", os.fspath(source["path"])]
    else:
        arguments.append(os.fspath(source["path"]))
    for index, picture in enumerate(pictures):
        if isinstance(picture, (bytes, bytearray, memoryview)):
            # The reader goes by what is in the file and not by its name.
            arguments.append(written(bytes(picture), f"picture-{index + 1}.png"))
        else:
            arguments.append(os.path.abspath(os.fspath(picture)))
    return ServedPage(arguments, folder, height, chosen)
