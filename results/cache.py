"""The user's cache folder: what can be made again, on this machine's own disk where that is so set up."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where it is; SCALEVEC_CACHE_DIR names another. It need not exist."""
    from platformdirs import user_cache_path

    named = os.environ.get("SCALEVEC_CACHE_DIR")
    return Path(named) if named else user_cache_path("scalevec", appauthor=False)
