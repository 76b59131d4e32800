"""Files are written whole or not at all."""

from __future__ import annotations

import os


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file beside its place and moves it there."""
    path = os.fspath(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        # The name of the file that was meant.
        raise type(error)(error.errno, error.strerror, path) from None
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
