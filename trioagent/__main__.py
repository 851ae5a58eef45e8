"""``python -m trioagent``: the command line."""

from __future__ import annotations

import sys

from trioagent.cli import main

sys.exit(main())
