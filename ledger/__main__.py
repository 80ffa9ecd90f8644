"""`python -m ledger`: see `ledger.py`."""

import sys

from .ledger import main

sys.exit(main())
