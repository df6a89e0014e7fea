"""The program: `python3 -m epipe train ...` is `epipe train ...`."""

import os
import sys

from .runs import program


def main():
    os.execv(program(), ["epipe", *sys.argv[1:]])


if __name__ == "__main__":
    main()
