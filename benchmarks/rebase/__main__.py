"""`python benchmarks/rebase`: makes the folder importable and runs it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rebase.main import main

if __name__ == "__main__":
    sys.exit(main())
