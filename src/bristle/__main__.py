"""Run the command line by `python -m bristle`."""

from bristle.cli import main

if __name__ == "__main__":
    main()
