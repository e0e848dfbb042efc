"""Make the bundled MNIST files again: `python -m bristle.data.make_mnist mnist.npz [FOLDER]`.

Without a folder the files of the package itself are replaced.
"""

import argparse
import sys
from pathlib import Path

from bristle.data.bundled import write_packed


def main(arguments: list[str] | None = None) -> int:
    """Write the files and print their sizes."""
    parser = argparse.ArgumentParser(prog="python -m bristle.data.make_mnist", description=__doc__)
    parser.add_argument("source", type=Path, help=".npz with x_train, y_train, x_test, y_test (8-bit)")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "bundled_mnist")
    options = parser.parse_args(arguments)
    for path in write_packed(options.source, options.folder):
        print(f"{path.stat().st_size:>10,}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
