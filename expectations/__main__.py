"""`python -m expectations`."""

import sys

from expectations.validate import main

sys.exit(main())
