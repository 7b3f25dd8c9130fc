"""`python -m reprise`, and the script `reprise`: the program, with the same arguments."""

import os
import sys

from . import _program, errors


def main() -> None:
    """Become the program."""
    try:
        program = _program.find()
    except errors.NotFound as error:
        sys.exit(f"reprise: {error}")
    os.execv(program, ["reprise", *sys.argv[1:]])


if __name__ == "__main__":
    main()
