"""The report of eval on several ranks, also with a rank that has no samples."""
import json

from ranks import COMMAND, MPIEXEC, RankTest, run


class Report(RankTest):
    def report(self, ranks, *more):
        words = [COMMAND, "eval", "--checkpoint", self.path("run"), "--data", "idx:" + self.data, "--devices", "pocl",
                 "--report", "--confusion", "--json", "--top", "2", *more]
        child = self.begin([*([MPIEXEC, "-n", ranks] if ranks > 1 else []), *words])
        out, err = self.wait(child, 0)
        self.assertEqual(err, "")
        return json.loads(out)["metrics"]

    def test_ranks(self):
        self.train("--steps", "6", "--checkpoint-dir", self.path("run"), "--devices", "pocl")
        one = self.report(1)
        self.assertEqual(self.report(2), one)
        # With batches of one sample, ranks behind the first have none.
        self.assertEqual(self.report(2, "--batch", "1"), one)


if __name__ == "__main__":
    run()
