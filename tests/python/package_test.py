"""The package itself: one LibTorch, clear words where another one is there, help that reads like a page."""

import ast
import importlib.util
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import torch

import epipe
from epipe import _build_info, _compatible
from support import EXAMPLES_ALONE, EXAMPLES_WITH_A_SERVER, TempFolder, examples_of, failures_of, main

PACKAGE = pathlib.Path(epipe.__file__).parent


class ThePackage(TempFolder):
    def test_uses_the_libtorch_of_import_torch_and_no_other(self):
        loaded = set(re.findall(r"\S*/libtorch_cpu\.so\S*", pathlib.Path("/proc/self/maps").read_text()))
        self.assertEqual(len({os.path.realpath(path) for path in loaded}), 1, loaded)

    def test_says_which_pytorch_it_expects(self):
        version = _build_info.TORCH + ".0"
        self.assertIsNone(_compatible.difference(version + "+cpu", _build_info.CXX11_ABI, _build_info.PYTHON))
        self.assertRegex(_compatible.difference("9.9.1", _build_info.CXX11_ABI, _build_info.PYTHON), "expected PyTorch .* got 9.9.1")
        self.assertRegex(_compatible.difference(version, not _build_info.CXX11_ABI, _build_info.PYTHON), "ABI, which it was built with")
        self.assertRegex(_compatible.difference(version, _build_info.CXX11_ABI, "3.1"), "expected Python .* got 3.1")

    def import_copy(self, old, new):
        """What Python says to `import epipe` of a copy with another _build_info."""
        shutil.copytree(PACKAGE, self.folder / "epipe", symlinks=True)
        info = self.folder / "epipe" / "_build_info.py"
        info.write_text(info.read_text().replace(old, new))
        return subprocess.run([sys.executable, "-c", "import epipe"], env={**os.environ, "PYTHONPATH": str(self.folder)},
                              stderr=subprocess.PIPE, text=True)

    def test_refuses_another_pytorch_before_the_linker_does(self):
        done = self.import_copy(f'TORCH = "{_build_info.TORCH}"', 'TORCH = "9.9"')
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"ImportError: epipe: expected PyTorch 9.9, which it was built with, got {torch.__version__}; build it again", done.stderr)

    def test_loads_from_anywhere(self):
        done = self.import_copy("nothing", "nothing")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_has_types_for_all_it_exports(self):
        self.assertTrue((PACKAGE / "py.typed").exists())
        stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
        named = {node.name: node for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        constants = {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
        (exported,) = [node.value for node in stub.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"]
        self.assertEqual(ast.literal_eval(exported), epipe.__all__)
        self.assertEqual(set(epipe.__all__) - set(named) - constants, set())
        for name in epipe.__all__:
            thing = getattr(epipe, name)
            pairs = {name: (named[name], thing)} if inspect.isfunction(thing) else {}
            if inspect.isclass(thing):
                methods = {node.name: node for node in named[name].body if isinstance(node, ast.FunctionDef)}
                pairs = {f"{name}.{key}": (methods.get(key), value) for key, value in vars(thing).items()
                         if inspect.isfunction(value) and (key in methods or not key.startswith("_") and not hasattr(torch.nn.Module, key))}
            for full_name, (stub_node, value) in pairs.items():
                with self.subTest(full_name):
                    self.assertIsNotNone(stub_node)
                    arguments = stub_node.args
                    every = [*arguments.args, *filter(None, [arguments.vararg]), *arguments.kwonlyargs]
                    self.assertEqual([argument.arg for argument in every], list(inspect.signature(value).parameters))

    def test_has_an_example_for_everything(self):
        for name in epipe.__all__:
            thing = getattr(epipe, name)
            if isinstance(thing, str) or (inspect.isclass(thing) and issubclass(thing, (Exception, epipe.Submitted))):
                continue
            with self.subTest(name):
                self.assertIn(">>>", inspect.getdoc(thing))
            for method_name, method in vars(thing).items() if inspect.isclass(thing) else ():
                if isinstance(method, property):
                    method = method.fget
                elif not inspect.isfunction(method) or method_name == "forward":
                    continue
                if not method_name.startswith("_") and method.__doc__:
                    with self.subTest(f"{name}.{method_name}"):
                        self.assertIn(">>>", method.__doc__)

    def test_runs_the_examples_of_its_help(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        names = {"epipe": epipe, "torch": torch, "os": os}
        for module in EXAMPLES_ALONE:
            examples = examples_of(module)
            self.assertGreater(len(examples), 2)
            for name in sorted(examples, key=lambda name: (".train" not in name, name)):  # what it writes, others read
                if name.endswith(".plot") and not importlib.util.find_spec("matplotlib"):
                    continue
                examples[name].globs = dict(names, codec=epipe.Codec("ec:2"))
                if module == "epipe.run_metrics":
                    examples[name].globs["lines"] = epipe.metrics("runs/first")
                self.assertEqual(failures_of(examples[name]), "")

    def test_has_no_example_that_is_not_run(self):
        with_examples = {path.stem for path in PACKAGE.glob("*.py") if ">>> " in path.read_text()}
        run = {module.rpartition(".")[2] for module in EXAMPLES_ALONE + EXAMPLES_WITH_A_SERVER}
        self.assertEqual(with_examples, run - {"epipe"} | {"__init__"})
        self.assertFalse([path.name for path in PACKAGE.glob("*.py") if "doctest: +SKIP" in path.read_text()])

    def test_has_help(self):
        done = subprocess.run([sys.executable, "-c", "import epipe; help(epipe)"], stdout=subprocess.PIPE, text=True)
        self.assertIn("class RemoteStage", done.stdout)
        self.assertIn("The middle of a network on a server", done.stdout)


if __name__ == "__main__":
    main()
