"""The Markdown files of a folder, and their prose. For check_links.py and check_line_length.py."""

# Made by builds and runs, or tests of these checks.
SKIPPED = {"build", "runs", "tests"}


def files_below(root):
    """Sorted; nothing from hidden folders."""
    for file in sorted(root.rglob("*.md")):
        parts = file.relative_to(root).parts
        if parts[0] not in SKIPPED and not any(part.startswith(".") for part in parts):
            yield file


def prose_lines(text):
    """(number, line) of every line outside of fenced code."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line
