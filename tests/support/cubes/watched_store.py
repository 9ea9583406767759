"""A folder as an object store whose requests are told to a hook first: counted, slowed, refused.

A request is what a remote store would be asked: a look at a path, opening a file, and each read of it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs
from rtolap.object_store.store import ObjectStore


def watched_store(root: Path, on_request: Callable[[str], None]) -> ObjectStore:
    """Return the store below `root` for reading. `on_request` gets the path; its OSError becomes the
    store's."""
    filesystem = fs.PyFileSystem(_WatchedHandler(on_request))
    return ObjectStore(filesystem, str(root), root.as_uri())


class _WatchedHandler(fs.FileSystemHandler):  # type: ignore[misc]
    def __init__(self, on_request: Callable[[str], None]) -> None:
        self._on_request = on_request
        self._inner = fs.LocalFileSystem()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WatchedHandler) and other._on_request == self._on_request

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "watched"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        for path in paths:
            self._on_request(path)
        return self._inner.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        self._on_request(selector.base_dir)
        return self._inner.get_file_info(selector)

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.PythonFile:
        self._on_request(path)
        return pa.PythonFile(_Reader(path, self._on_request), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        raise NotImplementedError("it is read only")

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        raise NotImplementedError("it is read only")

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError("it is read only")

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError("it is read only")

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        raise NotImplementedError("it is read only")

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("it is read only")

    def delete_file(self, path: str) -> None:
        raise NotImplementedError("it is read only")

    def move(self, source: str, target: str) -> None:
        raise NotImplementedError("it is read only")

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError("it is read only")


class _Reader(io.RawIOBase):
    def __init__(self, path: str, on_request: Callable[[str], None]) -> None:
        self._path, self._on_request = path, on_request
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        self._on_request(self._path)
        return self._file.read(size) or b""

    def close(self) -> None:
        self._file.close()
        super().close()
