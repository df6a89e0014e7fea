#!/usr/bin/env python3
"""Fails when a line of prose in a Markdown file is wider than 100 columns. Tables and code may be wider."""
import pathlib
import sys

from markdown_files import files_below, prose_lines

COLUMNS = 100


def too_wide(line):
    """A line of one word, such as an address, cannot be broken."""
    return len(line) > COLUMNS and not line.lstrip().startswith(("|", "![")) and len(line.split()) > 1


def main(root):
    errors = [
        f"{file.relative_to(root)}:{number}: expected at most {COLUMNS} columns, got {len(line)}"
        for file in files_below(root)
        for number, line in prose_lines(file.read_text())
        if too_wide(line)
    ]
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent.parent
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here))
