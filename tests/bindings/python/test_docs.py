"""Runs the snippets of docs/python.md, one after the other, and holds the page to what it says."""
import contextlib
import io
import os
import re

import support

ROOT = os.environ.get("CLT_TEST_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


class Docs(support.Case):
    def test_snippets(self):
        with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
            snippets = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        self.assertGreaterEqual(len(snippets), 5)
        lines = [line for line in snippets[0].split("\n") if line.strip()]
        self.assertLessEqual(len(lines), 20, "LeNet from arrays takes at most 20 lines")
        names, printed = {}, io.StringIO()
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            for number, snippet in enumerate(snippets):
                with contextlib.redirect_stdout(printed):
                    exec(compile(snippet, f"docs/python.md, snippet {number + 1}", "exec"), names)
                if number == 0:
                    self.assertGreater(names["history"]["test_accuracy"][0], 0.7)
                    self.assertTrue(os.path.exists("lenet.safetensors"))
            self.assertTrue(os.listdir("run"))
            self.assertEqual(names["probabilities"].shape, (5, 10))
        finally:
            os.chdir(here)
        self.assertIn("parameters", printed.getvalue())


if __name__ == "__main__":
    support.main()
