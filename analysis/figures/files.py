"""Writing a file so that a reader sees the old content or the new one, never a part."""

import secrets
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside ``path``, then rename; missing folders are made. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not ``tempfile``: its files are for their owner alone, whatever the umask.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
