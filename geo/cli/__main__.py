"""`python -m geo.cli`."""

import sys

from geo.cli.main import main

sys.exit(main())
