"""A fork server whose workers load no torch and train nothing: for tests that end it, or harm it.

Run as ``python -P light_fork_server.py MODULE``, MODULE being the one that it stands for.
"""

import sys
import types
from collections.abc import Sequence
from pathlib import Path

MODULE = "scalevec.orchestrator.worker.train"
COMMAND = (sys.executable, "-P", str(Path(__file__).resolve()), "scalevec.orchestrator.worker.fork_server")


def worker_main(arguments: Sequence[str]) -> int:
    """What ``worker.train`` makes of ``--help`` and of arguments that it does not know."""
    print("usage: train", *arguments, flush=True)
    return 0 if arguments == ["--help"] else 2


def main() -> int:
    worker = types.ModuleType(MODULE)
    worker.__file__, worker.main = __file__, worker_main
    sys.modules[MODULE] = worker
    from scalevec.orchestrator.worker import fork_server

    return fork_server.main()


if __name__ == "__main__":
    sys.exit(main())
