"""--freeze and --param-group: which parameters they train, what they refuse, and resumed runs."""
import os

from command import CommandTest, get, main, tensors


class Groups(CommandTest):
    def last(self, run):
        return os.path.join(run, sorted(os.listdir(run))[-1])

    def model(self, run, *more, steps="3", devices="pocl"):
        run = self.path(run)
        self.train("--steps", steps, "--checkpoint-dir", run, *more, devices=devices)
        return run

    def values(self, run, name="model.safetensors"):
        return tensors(os.path.join(self.last(run), name))

    def test_freeze(self):
        early = self.values(self.model("early", "--freeze", "fc1.*", "--optimizer", "adam", steps="1"))
        run = self.model("late", "--freeze", "fc1.*", "--optimizer", "adam", steps="4")
        late = self.values(run)
        frozen = [name for name in late if name.startswith("fc1.")]
        self.assertTrue(frozen and len(frozen) < len(late))
        for name in late:
            self.assertEqual(late[name] == early[name], name in frozen, name)
        moments = self.values(run, "optimizer.safetensors")
        self.assertEqual({name.rsplit(".", 1)[0] for name in moments}, set(late) - set(frozen))

    def test_groups_twice(self):
        """An option given twice counts twice. Groups with no decay and rate 1 change nothing."""
        decay = ("--optimizer", "adamw", "--weight-decay", "0.1")
        plain = self.values(self.model("plain", "--optimizer", "adamw"))
        two = self.values(self.model("two", *decay, "--param-group", "1d:decay=0", "--param-group",
                                     "*.weight:lr=1,decay=0"))
        self.assertEqual(plain, two)
        one = self.values(self.model("one", *decay, "--param-group", "1d:decay=0"))
        self.assertNotEqual(plain, one)
        still = self.values(self.model("still", "--param-group", "fc1.bias:lr=0"))
        first = self.values(self.model("first", "--param-group", "fc1.bias:lr=0", steps="1"))
        self.assertEqual(still["fc1.bias"], first["fc1.bias"])

    def test_fields_are_merged(self):
        """A parameter in two groups gets the rate of one group and the decay of the other."""
        decay = ("--optimizer", "adamw", "--weight-decay", "0.1", "--lr", "0.1")
        merged = self.values(self.model("merged", *decay, "--param-group", "1d:decay=0",
                                        "--param-group", "fc1.*:lr=0.5"))
        apart = self.values(self.model("apart", *decay, "--param-group", "1d:decay=0", "--param-group",
                                       "fc1.weight:lr=0.5", "--param-group", "fc1.bias:lr=0.5,decay=0"))
        self.assertEqual(merged, apart)

    def test_given_twice(self):
        for option, text in (("--batch", "8"), ("--data", "fashion-mnist"), ("--lr", "0.1")):
            with self.subTest(option=option):
                self.assert_bad(*self.arguments(), option, text, *(("--lr", "0.2") if option == "--lr" else ()), code=2,
                                says=(f"{option} is given twice",))

    def test_resume(self):
        groups = ("--freeze", "fc1.bias", "--param-group", "1d:lr=0.5,decay=0", "--weight-decay", "0.1")
        straight, broken = self.model("straight", *groups, steps="6"), self.model("broken", *groups)
        self.train("--steps", "6", "--checkpoint-dir", broken, "--resume", *groups)
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(*(get(os.path.join(self.last(run), name)) for run in (straight, broken)))
        for other in (groups[2:], ("--freeze", "fc1.bias", "--param-group", "1d:lr=0.25,decay=0")):
            self.assert_bad(*self.arguments("--checkpoint-dir", broken, "--resume", "--steps", "8",
                                            *other), code=1, says=("parameter groups", "bias"))

    def test_refused(self):
        for option, text, says in (("--freeze", "nothing.*", "nothing.*"), ("--param-group", "1d", "PATTERN"),
                                   ("--param-group", "1d:", "PATTERN"),
                                   ("--param-group", "1d:rate=2", "rate=2"),
                                   ("--param-group", "1d:lr=-1", "lr=-1"),
                                   ("--param-group", "none:lr=1", "none")):
            with self.subTest(option=option, text=text):
                self.assert_bad(*self.arguments(option, text), code=2, says=(says,))
        self.assert_bad(*self.arguments("--freeze", "*"), code=2, says=("frozen",))


main()
