"""Entry point of `make bench`: puts the repository on the path, so that modules are `bench.NAME` everywhere."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from bench.suite import main

    sys.exit(main(sys.argv[1:]))
