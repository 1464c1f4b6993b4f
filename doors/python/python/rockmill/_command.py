"""The command ``rockmill``: the same library as the package."""

import signal
import sys

from rockmill import _rockmill


def main() -> None:
    """Runs the command with the arguments of the process, and ends the process with its exit code."""
    # The command ends at Control-C, or catches it itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_rockmill.main(["rockmill", *sys.argv[1:]]))
