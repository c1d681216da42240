"""`python -m engram`."""

import sys

from engram.cli import main

if __name__ == "__main__":
    sys.exit(main())
