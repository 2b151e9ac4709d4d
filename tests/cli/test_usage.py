"""Mistakes in the command line: one line that says what is wrong, exit 2, and nothing is written."""
import errno
import os

from command import CommandTest, main, put


class Usage(CommandTest):
    def assert_usage(self, *args, says=()):
        put(self.path("old.jsonl"), b"old\n")
        os.makedirs(self.path("run"), exist_ok=True)
        self.assert_bad(*args, code=2, says=says)

    def assert_train(self, *args, says=()):
        self.assert_usage(*self.arguments("--metrics", self.path("old.jsonl"), "--checkpoint-dir",
                                          self.path("run"), *args), says=says)

    def test_commands(self):
        self.assert_usage("trian", says=("trian", "did you mean train?"))
        self.assert_usage(says=("which command",))
        self.assert_usage("help", "devces", says=("did you mean devices?",))

    def test_help(self):
        self.assertIn("cltrain ", self.run_command("--version").stdout)
        self.assertIn("bench", self.run_command("help").stdout)
        for name in ("devices", "train", "eval", "plan", "bench", "tune", "plot"):
            self.assertIn("--help", self.run_command(name, "--help").stdout)
        self.assertIn("--clip-norm X", self.run_command("help", "train").stdout)
        self.assertIn("lenet", self.run_command("models").stdout)
        for args in (("help", "models"), ("models", "--help")):
            self.assertIn("Usage: cltrain models", self.run_command(*args).stdout)
        self.assertIn("COMMAND", self.run_command("help", "help").stdout)
        self.assert_usage("models", "lenet", says=("takes no arguments",))

    def test_options(self):
        self.assert_train("--epoch", "3", says=("--epoch;", "did you mean --epochs?"))
        self.assert_train("--optimiser=adam", says=("did you mean --optimizer?",))
        self.assert_train("--zzzzzz", says=("unknown option --zzzzzz",))
        self.assert_train("--explain", says=("does not belong to this subcommand",))
        self.assert_usage("devices", "--epochz", "3", says=("--epochs belongs to other subcommands",))
        self.assert_usage("eval", "--resume", says=("option --resume does not belong",))  # --resize is an option of eval
        self.assert_train("--lr", says=("--lr needs a value",))
        self.assert_train("--precision", "fp16", says=("f32, bf16 or f16", "did you mean f16?"))
        self.assert_train("extra", says=("unexpected argument 'extra'",))
        self.assert_usage("train", says=("--model is missing",))
        self.assert_usage("train", "--model", "mlp", says=("--data is missing",))

    def test_numbers(self):
        for option, values in {
                "--batch": ("0", "-3", "x", "1.5", "99999999999999999999", ""),
                "--lr": ("nan", "inf", "-1", "1e999", "fast", "0.1x"),
                "--epochs": ("-1", "two"), "--steps": ("0", "-7"), "--seed": ("-1",),
                "--accumulate": ("0", "1048577", "2000000000", "4000000000"), "--momentum": ("1", "nan"), "--weight-decay": ("-1",),
                "--clip-norm": ("nan", "-1"), "--keep": ("-1",),
                "--checkpoint-every": ("0", "-2", "epochs", "5x"),
                "--normalize": ("0.5", "0.5,0", "nan,1", "1,2,3", ",", "a,b"),
                "--shuffle": ("maybe",), "--precision": ("bf8", "f64", "f8", "half"),
                "--schedule": ("linear", "step:0:0.1", "cosine,warmup:-1", "cosine:-1",
                                                     "step:1:-2", "cosine:0.5"),
                "--classes": ("0", "x"),
                "--split": ("even", "1,", ",1", "1,,1", "0,0", "-1,2", "nan,1", "1;2"),
                "--tune": ("maybe", "-1", "inf"), "--optimizer": ("sdg", "lyon")}.items():
            for value in values:
                with self.subTest(option=option, value=value):
                    self.assert_train(option, value)
        self.assert_train("--epochs", "1", "--steps", "2", says=("not both",))
        # An option without effect is refused.
        self.assert_train("--optimizer", "nesterov", "--momentum", "1", says=("below 1",))
        for optimizer in ("sgd", "adam", "adamw"):
            self.assert_train("--optimizer", optimizer, "--momentum", "0.5", says=("--momentum 0.5", f"not {optimizer}"))
        for model, option, value in (("lenet", "--windows", "random"), ("gpt2:nano", "--windows", "random"),
                                     ("gpt2:nano", "--image-size", "8"), ("gpt2:nano", "--resize", "8")):
            self.assert_usage("plan", "--model", model, option, value, "--devices", "pocl", says=(option, "is for"))
        for more in (("--rebalance",), ("--split", "equal")):
            self.assert_train("--replay", self.path("old.jsonl"), *more, says=(more[0] + " out",))

    def test_names(self):
        data = "idx:" + self.data
        self.assert_usage("train", "--model", "lnet", "--data", data, says=("did you mean lenet?",))
        self.assert_usage("train", "--model", "gtp2:nano,dropout=0.1", "--data", data,
                          says=("did you mean gpt2:nano,dropout=0.1?",))
        self.assert_usage("train", "--model", "x", "--data", data, says=("softmax, mlp, lenet",))
        self.assert_usage("train", "--model", "mlp", "--data", "fashion-mnits",
                          says=("did you mean 'fashion-mnist'?",))
        self.assert_usage("train", "--model", "mlp", "--data", "idx:", says=("missing",))
        self.assert_usage("train", "--model", "mlp", "--data", "nppz:x", says=("did you mean 'npz:'?",))
        self.assert_usage("train", "--model", "mlp", "--data", "ixd:" + self.data,
                          says=("did you mean 'idx:'?",))
        self.assert_train("--schedule", "cosin", says=("did you mean cosine?",))
        self.assert_train("--batch", str(2 ** 63 - 1), says=("2147483647",))
        self.assert_train("--variant", "linear", says=("OPERATOR=NAME",))
        self.assert_train("--variant", "liner=portable", says=("did you mean linear?",))
        self.assert_train("--variant", "linear=portble", says=("did you mean portable?",))
        self.assert_train("--optimizer", "sdg", says=("did you mean sgd?",))
        self.assert_train("--optimizer", "adm", says=("did you mean adam?",))

    def test_devices(self):
        for devices, says in (("pcl", "pocl"), ("99", "99"), ("pocl/0", "pocl/0"),
                              ("pocl@9999", "core"), ("pocl,,", "empty")):
            with self.subTest(devices=devices):
                self.assert_usage(*self.arguments(devices=devices), says=(says,))

    def test_checkpoint_options(self):
        for option in (("--resume",), ("--checkpoint-every", "3"), ("--keep", "2")):
            self.assert_usage(*self.arguments(*option), says=(option[0], "--checkpoint-dir"))
        os.makedirs(self.path("run", "step-00000003"))
        self.assert_train(says=("holds checkpoints already", "--resume"))

    def assert_early(self, *args, says):
        """Checks for a usage error before anything is printed."""
        with self.subTest(args=args):
            done = self.assert_bad("bench", *args, code=2, says=says)
            self.assertEqual(done.stdout, "")

    def test_bench_options(self):
        gemm, conv = ("gemm", 4, 4, 4), ("conv", "1x3x5x5", "3x3x3")
        for subject, options in ((gemm, (("--by-node",), ("--groups", 4), ("--model", "lenet"),
                                         ("--steps", 3), ("--seed", 1), ("--data", "synthetic"))),
                                 (conv, (("--compare",), ("--trans", "NN"), ("--batch", 4))),
                                 (("op", "relu"), (("--stride", 2), ("--warmup", 1))),
                                 (("scaling", "gemm"), (("--padding", 1), ("--lr", 1))),
                                 (("allreduce", "4096"), (("--tune", 1), ("--variant", "a=b"))),
                                 (("train", "--model", "mlp"), (("--stride", 2), ("--compare",)))):
            for option in options:
                self.assert_early(*subject, *option,
                                  says=(option[0] + " does not belong to bench " + subject[0],))
        self.assert_early(*gemm, "--blocks", 99999999999, says=("--blocks 99999999999", "99"))
        self.assert_early(*gemm, "--blocks", 100, says=("at most 99",))
        self.assert_early("train", "--model", "mlp", "--blocks", 10001, says=("at most 10000",))
        self.assert_early(*gemm, "--variant", "foo=bar", says=("no operator 'foo'", "matmul"))
        self.assert_early(*gemm, "--variant", "linear=bar", says=("'bar'", "there are", "portable"))
        self.assert_early("op", "foo", says=("relu, add, chain",))
        self.assert_early("scaling", "foo", says=("gemm, conv5x5, conv3x3",))
        for option, value in (("--padding", 2 ** 32), ("--stride", 2 ** 32 + 1),
                              ("--groups", 2 ** 32 + 2)):
            self.assert_early(*conv, option, value, says=(f"{option} {value}", "2147483647"))
        self.assert_early(*conv, "--padding", 2 ** 31 - 1, says=("padding 2147483647x2147483647",))

    def test_simulate(self):
        for more in (("--simulate", "8"), ("--link", "1GB/s,1us")):
            self.assert_usage("plan", "--model", "mlp", *more, says=("--simulate and --link",))
        for ranks in ("0", "8,", "8,x", "1.5", "-4"):
            self.assert_usage("plan", "--model", "mlp", "--simulate", ranks, "--link", "1GB/s,1us",
                              says=("--simulate " + ranks,))
        for link in ("fast", "1GB/s", "1GB/s,1", "1GB,1us", "0GB/s,1us"):
            self.assert_usage("plan", "--model", "mlp", "--simulate", "8", "--link", link,
                              says=("--link", link, "25GB/s,5us"))
        self.assert_usage("plan", "--model", "mlp", "--simulate", "2", "--link", "1GB/s,1us", "--wire", "bf16",
                          says=("--wire bf16", "--inter"))

    def test_other_commands(self):
        self.assert_usage("bench", says=("train",))
        self.assert_usage("bench", "gemm", says=("M N K",))
        self.assert_usage("bench", "gemm", "8", "8", "0", says=("0: must be",))
        self.assert_usage("bench", "gemm", "8", "8", "8", "--trans", "XN", says=("NN, NT",))
        self.assert_usage("bench", "conv", "4x3x9x9", "5x3", says=("5x3", "64x3x3"))
        self.assert_usage("bench", "conv", "1x3x2x2", "5x3x3", says=("conv2d",))
        self.assert_usage("bench", "op", "rleu", says=("did you mean relu?",))
        self.assert_usage("bench", "scaling", "gem", says=("did you mean gemm?",))
        self.assert_usage("bench", "scaling", "--devices", "pocl", says=("pocl/2",))
        for size in ("1XB", "0", "63", "65", "-4", "2000GB", "99999999999999999999"):
            self.assert_usage("bench", "allreduce", "--", size, says=(size, "not a size", "16MB"))
        self.assert_usage("bench", "train", "more", says=("more",))
        self.assert_usage("bench", "train", "--by-node", "--blocks", "2", says=("--blocks does not",))
        self.assert_usage("bench", "tran", says=("did you mean train?",))
        self.assert_usage("bench", "gemm", "8", "8", "8", "--variant", "matmul=portable,matmul=gemm_cpu",
                          says=("matmul=gemm_cpu", "has one already"))
        self.assert_usage("tune", "--budget", "0", says=("--budget 0", "above 0"))
        self.assert_usage("tune", "--budget", "off", says=("--budget off", "not a number"))
        self.assert_bad("tune", "--export", self.path("none", "x.json"), code=1,
                        says=("none/x.json", os.strerror(errno.ENOENT)))
        self.assert_usage("plot", says=("which files",))
        self.assert_usage("plot", self.path("old.jsonl"), says=("-o",))
        self.assert_usage("plot", self.path("old.jsonl"), "-o", self.path("old.jsonl"),
                          says=(".png",))
        self.assert_usage("eval", "--model", "mlp", "--data", "idx:" + self.data,
                          says=("--checkpoint",))


if __name__ == "__main__":
    main()
