"""`python -m geo`, the command line where nothing put `geo` on the path."""

import sys

from geo.cli.main import main

sys.exit(main())
