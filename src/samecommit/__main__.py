"""``python -m samecommit``: the command line, also where its script is not on PATH."""

from samecommit.cli import main

if __name__ == "__main__":
    main()
