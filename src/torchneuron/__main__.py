"""Let `python -m torchneuron` be the command `torchneuron`."""

import sys

from torchneuron.cli import main

if __name__ == "__main__":
    sys.exit(main())
