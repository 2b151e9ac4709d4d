"""Man pages and bash completion, which the command writes from its tables."""
import os
import re
import shutil
import subprocess
import unittest

from command import COMMAND, CommandTest, main, put

# Completes a line as bash does with the cursor at its end. COMP_WORDBREAKS has bash's default.
COMPLETE = r'''
source "$1"
compopt() { :; }
COMP_LINE=$2 COMP_POINT=${#2}
_cltrain
printf '%s\n' "${COMPREPLY[@]}"
'''


class Manual(CommandTest):
    def commands(self):
        text = self.run_command("help").stdout
        return [c for c in re.findall(r"^  (\w+) ", text, re.M) if c not in ("models", "help")]

    def page(self, *command):
        return self.run_command("--print-man", *command).stdout

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_pages_render(self):
        for command in [(), *((c,) for c in self.commands())]:
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou"], input=self.page(*command),
                                  capture_output=True, text=True, timeout=60, check=True,
                                  env={**os.environ, "LC_ALL": "C.UTF-8"})
            self.assertEqual(done.stderr, "", command)
            for part in ("NAME", "SYNOPSIS", "EXIT STATUS"):
                self.assertIn(part, done.stdout)

    def test_pages_hold_all_options(self):
        for command in self.commands():
            options = re.findall(r"^  (?:-\w, )?--([\w-]+)", self.run_command(command, "--help").stdout, re.M)
            self.assertIn("help", options)
            page = self.page(command).replace("\\-", "-")
            for option in options:
                self.assertIn(f"\\fB--{option}\\fR", page, command)
            self.assertIn(f"cltrain-{command} \\- ", self.page(command))
            self.assertIn(f"cltrain\\-{command} (1)", self.page())

    def test_examples(self):
        """The examples of the pages use existing options."""
        for command in self.commands():
            text = self.page(command).replace("\\-", "-")
            lines = re.findall(r"^\\fBcltrain (.*)\\fR$", text, re.M)
            self.assertTrue(lines, command)
            for line in lines:
                for option in re.findall(r"--[\w-]+", line):
                    self.assertIn(f"\\fB{option}\\fR", text, line)

    def test_unknown_page(self):
        self.assert_bad("--print-man", "trian", code=2, says=("trian",))

    def complete(self, line):
        script = self.path("cltrain.bash")
        if not os.path.exists(script):
            put(script, self.run_command("--print-completion").stdout.encode())
        done = subprocess.run(["bash", "--norc", "-c", COMPLETE, "bash", script, line],
                              capture_output=True, text=True, timeout=60, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return sorted(done.stdout.split())

    def test_commands_and_options(self):
        self.assertEqual(self.complete("cltrain tr"), ["train"])
        self.assertLess({*self.commands(), "models", "help"}, set(self.complete("cltrain ")))
        self.assertEqual(self.complete("cltrain train --res"), ["--resize", "--resume", "--resume-intact"])
        self.assertEqual(self.complete("cltrain eval --resu"), [])
        self.assertEqual(self.complete("LANG=C build/bin/cltrain bench g"), ["gemm"])
        self.assertEqual(self.complete("cltrain bench gemm --tr"), ["--trans"])
        self.assertEqual(self.complete("cltrain bench conv --tr"), [])
        self.assertEqual(self.complete("cltrain data "), ["inspect", "tokenize"])
        self.assertEqual(self.complete("cltrain help pl"), ["plan", "plot"])

    def test_values(self):
        self.assertEqual(self.complete("cltrain train --model res"), ["resnet18", "resnet34", "resnet50"])
        names = re.findall(r"^([\w-]+) ", self.run_command("models").stdout, re.M)
        self.assertEqual(self.complete("cltrain train --model "), sorted(names))
        self.assertEqual(self.complete("cltrain train --optimizer "),
                         ["adagrad", "adam", "adamw", "lion", "momentum", "muon", "nesterov", "rmsprop", "sgd"])
        self.assertEqual(self.complete("cltrain train --optimizer=ada"), ["adagrad", "adam", "adamw"])
        self.assertEqual(self.complete("cltrain train --lr "), [])
        self.assertEqual(self.complete("cltrain train --precision b"), ["bf16"])

    def test_values_are_accepted(self):
        """The command accepts every value that completion offers."""
        wanted = {"--precision": (), "--schedule": ("step:", "cosine,warmup:", "plateau:"), "--shuffle": (), "--split": (),
                  "--tune": (), "--optimizer": (), "--checkpoint-every": (), "--devices": ("gpu",)}
        for option, unfinished in wanted.items():
            values = [v for v in self.complete(f"cltrain train {option} ") if v not in unfinished]
            self.assertTrue(values)
            for value in values:
                arguments = self.arguments(option, value, "--epochs", "0", "--checkpoint-dir", self.path("run"))
                done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=240)
                self.assertEqual(done.returncode, 0, f"{option} {value}: {done.stderr}")
                shutil.rmtree(self.path("run"), ignore_errors=True)

    def test_data_kinds(self):
        """Help, man page and docs/data.md name every data set that completion offers."""
        page = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "data.md")
        with open(page, encoding="utf-8") as file:
            texts = [file.read(), self.page("train").replace("\\-", "-"),
                     self.run_command("train", "--help").stdout]
        kinds = self.complete("cltrain train --data ")
        self.assertLess({"fashion-mnist", "idx:", "hdf5:", "synthetic"}, set(kinds))
        for kind in kinds:
            for text in texts:
                self.assertRegex(text, rf"(^|[\s`(]){re.escape(kind)}", kind)

    def test_files(self):
        put(self.path("net.json"), b"")
        put(self.path("photo.png"), b"")
        os.makedirs(self.path("run"), exist_ok=True)
        self.assertEqual(self.complete("cltrain train --model ne"), ["net.json"])
        self.assertEqual(self.complete("cltrain predict --checkpoint r"), ["run"])
        self.assertEqual(self.complete("cltrain predict --checkpoint run ph"), ["photo.png"])
        self.assertEqual(self.complete("cltrain train --data id"), ["idx:"])
        # Bash keeps the text before the colon.
        self.assertEqual(self.complete("cltrain train --data idx:da"), ["data"])
        self.assertEqual(self.complete("cltrain data inspect idx:da"), ["data"])
        self.assertEqual(self.complete("cltrain plot -o ph"), ["photo.png"])


if __name__ == "__main__":
    main()
