"""`python -m cuvee` is the command `cuvee`."""

import sys

from .cli import main

sys.exit(main())
