"""``python -m rockmill`` is the command."""

from rockmill._command import main

main()
