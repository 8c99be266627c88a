"""Git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_IDENTITY = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "protocol.file.allow=always")


class Repository:
    """A git repository with one commit, in a folder of its own."""

    def __init__(self, folder: Path, **files: str):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", ".")
        self.write("a.py", "print('a')\n")
        self.commit()

    def git(self, *words: str | bytes) -> str:
        """What git answers, as a user would ask it."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", *_IDENTITY, *words], cwd=self.folder, env=environ, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return os.fsdecode(done.stdout).removesuffix("\n")

    def write(self, name: str | bytes, text: str | bytes = "text\n") -> Path:
        """A file."""
        path = self.folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def commit(self) -> str:
        """Commit everything that git does not ignore; its hash."""
        self.git("add", "-A")
        self.git("commit", "-qm", "change")
        return self.git("rev-parse", "HEAD")

    def contents(self) -> dict[str, tuple[int, bytes]]:
        """What git itself has on disk, so that a change of it shows."""
        kept = {}
        for path in sorted((self.folder / ".git").rglob("*")):
            if path.is_file():
                kept[str(path)] = (path.stat().st_mtime_ns, path.read_bytes())
        return kept
