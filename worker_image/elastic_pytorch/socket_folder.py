"""A socket in a folder that may be emptied. Standard library only."""

import os
import shutil
import socket
import tempfile
from pathlib import Path

LOOK_SECONDS = 0.5  # between two checks that the socket is still there


class SocketFolder:
    """A temporary folder of this process with a socket that workers connect to.

    Scripts and cleaners empty /tmp, so both can be made again at the same path.
    """

    def __init__(self, name: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="elastic_pytorch_"))
        self.path = str(self._folder / name)  # nothing is there before `bind`
        self._open_to_all()

    def bind(self, kind: socket.SocketKind) -> socket.socket:
        """Returns a new socket at the path, which replaces the previous one, or raises OSError."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        if self._folder.lstat().st_uid != os.geteuid():
            raise PermissionError(f"{self._folder} belongs to another user")
        self._open_to_all()
        made = socket.socket(socket.AF_UNIX, kind)
        try:
            Path(self.path).unlink(missing_ok=True)
            made.bind(self.path)
            Path(self.path).chmod(0o666)
        except BaseException:
            made.close()
            raise
        return made

    def is_emptied(self) -> bool:
        return not os.path.lexists(self.path)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open_to_all(self) -> None:
        self._folder.chmod(0o711)  # a script may have given up its privileges
