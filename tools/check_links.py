#!/usr/bin/env python3
"""Fails when a relative link in a Markdown file leads nowhere: no such file, or no such heading in it."""
import pathlib
import re
import sys

from markdown_files import files_below, prose_lines

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
OTHER_SITES = re.compile(r"^[a-z]+:")


def anchors(text):
    """The anchors of headings on a rendered page: lower case, without punctuation, hyphens for spaces."""
    headings = (line.lstrip("#").strip() for _, line in prose_lines(text) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problem(file, target):
    """Why a link in `file` is broken; None if it works."""
    path, _, anchor = target.partition("#")
    page = (file.parent / path).resolve() if path else file
    if not page.exists():
        return "no such file"
    if anchor and page.suffix == ".md" and anchor not in anchors(page.read_text()):
        return "no such heading"
    return None


def main(root):
    errors = []
    for file in files_below(root):
        # A link may span two lines, so the prose is searched as one text.
        prose = "\n".join(line for _, line in prose_lines(file.read_text()))
        for target in LINK.findall(prose):
            reason = None if OTHER_SITES.match(target) else problem(file, target)
            if reason:
                errors.append(f"{file.relative_to(root)}: {target}: {reason}")
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent.parent
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here))
