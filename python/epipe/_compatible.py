"""Checks that the imported PyTorch is the one this package was built for.

This happens before the extension is loaded: otherwise the dynamic linker might fail with a list of mangled names, or not fail at all.
"""

import sys

from . import _build_info as built


def difference(torch_version, cxx11_abi, python_version):
    """What differs, as a sentence, or None."""
    minor = ".".join(torch_version.split(".")[:2])
    if minor != built.TORCH:
        return f"expected PyTorch {built.TORCH}, which it was built with, got {torch_version}"
    if cxx11_abi != built.CXX11_ABI:
        names = {True: "the C++11 ABI", False: "the old C++ ABI"}
        return f"expected a PyTorch with {names[built.CXX11_ABI]}, which it was built with, got one with {names[cxx11_abi]}"
    if python_version != built.PYTHON:
        return f"expected Python {built.PYTHON}, which it was built with, got {python_version}"
    return None


def check():
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"epipe needs PyTorch {built.TORCH}, and `import torch` fails: {error}") from error
    found = difference(torch.__version__, bool(torch._C._GLIBCXX_USE_CXX11_ABI), "%d.%d" % sys.version_info[:2])
    if found:
        raise ImportError(f"epipe: {found}; build it again for this one: `pip install .` or `make python` in a checkout")
    try:
        from . import _epipe  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"epipe: its extension does not load with PyTorch {torch.__version__}: {error}; "
            "build it again for this one: `pip install .` or `make python` in a checkout"
        ) from error
