"""python -m octavo_client is the command line `octavo`."""

import sys

from octavo_client.cli import main

sys.exit(main())
