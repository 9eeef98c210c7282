"""Where the embedded services keep their files, and the addresses that follow from it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

APP_ROLE = "verbatim_app"
DATABASE = "verbatim"


@dataclass(frozen=True, slots=True)
class Places:
    """Where one pair of servers keeps its sockets and locks (`home`) and its files (`data`)."""

    home: Path
    data: Path
    durable: bool = True

    @classmethod
    def of(cls, var: Path) -> Places:
        """The servers of a clone, by its `var` folder."""
        key = f"{var.resolve()}\n{os.geteuid()}".encode()
        name = f"verbatim-{hashlib.sha256(key).hexdigest()[:12]}"
        home = Path(tempfile.gettempdir()) / name
        return cls(home=home, data=home if os.geteuid() == 0 else var)

    @classmethod
    def throw_away(cls, folder: Path) -> Places:
        """Servers for a test run: everything in one short folder, nothing synced to the disk."""
        return cls(home=folder, data=folder, durable=False)

    @property
    def postgres(self) -> Path:
        return self.data / "postgres"

    @property
    def postgres_sockets(self) -> Path:
        return self.home / "pg"

    @property
    def valkey(self) -> Path:
        return self.data / "valkey"

    @property
    def valkey_socket(self) -> Path:
        return self.home / "valkey.sock"

    def database_url(self) -> str:
        return f"postgresql://{APP_ROLE}@/{DATABASE}?host={self.postgres_sockets}"

    def redis_url(self) -> str:
        return f"unix://{self.valkey_socket}"
