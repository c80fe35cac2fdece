"""C{python -m storagegate}: the script C{storagegate}, which starts the daemon by default."""

import sys

from storagegate.cli.main import main

if __name__ == "__main__":
    # A flag instead of a command: as C{twistd -n storagegate} takes it.
    isCommand = len(sys.argv) > 1 and not sys.argv[1].startswith("-")
    sys.exit(main(sys.argv[1:] if isCommand else ["serve", *sys.argv[1:]]))
