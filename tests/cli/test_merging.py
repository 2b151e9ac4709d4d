"""--merge-launches: the same losses, what plan --explain says, and bad values."""
from command import CommandTest, main, records, write_data


class Merging(CommandTest):
    def losses(self, how, *args):
        metrics = self.path("m.jsonl")
        self.run_command("train", "--model", "mlp:24,16", "--data", "idx:" + self.data, "--batch", "16", "--steps", "6",
                         "--seed", "7", "--devices", "pocl", "--tune", "off", "--metrics", metrics, "--merge-launches", how,
                         *args)  # fmt: skip
        steps, ends = records(metrics)
        return [r["loss"] for r in steps] + [r["test_loss"] for r in ends]

    def explained(self, *args):
        done = self.run_command("plan", "--model", "mlp:24,16", "--data", "idx:" + self.data, "--batch", "16", "--explain",
                                "--devices", "pocl", *args)  # fmt: skip
        return done.stdout

    def test_losses(self):
        write_data(self.data)
        want = self.losses("off")
        self.assertGreater(len(want), 6)
        for how in "on", "auto":
            self.assertEqual(self.losses(how), want)

    def test_explain(self):
        write_data(self.data)
        self.assertIn("Merged launches (none: turned off)", self.explained("--merge-launches", "off"))
        for args in (), ("--merge-launches", "on"), ("--merge-launches", "auto"):
            out = self.explained(*args)
            self.assertRegex(out, r"Merged launches \(predicted to save \d+ % of a step, which repays compiling after \d+ "
                                  r"steps\)\n  nodes \d+ to \d+: \d+ launches become")

    def test_bad_value(self):
        done = self.run_command("train", "--model", "mlp", "--data", "idx:" + self.data, "--merge-launches", "maybe", code=2)
        self.assertIn("--merge-launches maybe: must be auto, on or off", done.stderr)


if __name__ == "__main__":
    main()
