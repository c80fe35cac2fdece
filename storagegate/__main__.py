"""C{python -m storagegate}: the script C{storagegate}, which starts the daemon by default."""

import sys

from storagegate.cli.main import main

if __name__ == "__main__":
    # Flags without a command start the daemon, as in C{twistd -n storagegate}.
    isCommand = len(sys.argv) > 1 and not sys.argv[1].startswith("-")
    sys.exit(main(sys.argv[1:] if isCommand else ["serve", *sys.argv[1:]]))
