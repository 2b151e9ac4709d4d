"""Runs the examples of models/examples/heat. Their losses are PyTorch's on the samples that were drawn
(tests/goldens/heat.safetensors), and all languages give the same numbers. The simulations run as without a network.

    compare.py ROOT serial|ranks C=COMMAND,UNTOUCHED Fortran=... -- COMMAND...

A command is one word, or words between which a colon stands. What stands behind -- starts each: mpiexec -n 3.
"""
import os
import re
import subprocess
import sys
import tempfile

import numpy as np


def output(command, folder):
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    if "No module named 'mpi4py'" in run.stderr:
        return None
    assert run.returncode == 0, f"{' '.join(command)} ends with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    return run.stdout.splitlines()


def check_losses(language, losses, golden, case):
    want, envelope = golden[case + ".loss"], golden[case + ".kernel_envelope"]
    assert len(losses) == len(want), f"{language}: {len(losses)} losses, not {len(want)}"
    assert want[-1] < 0.2 * want[0], "the golden does not learn"
    # The 1e-5 are relative, because these losses are small.
    used = np.abs(np.array(losses) - want) / (1e-5 * want + 4 * envelope)
    step = int(used.argmax())
    print(f"{language}: {len(losses)} losses, {losses[0]:.6f} to {losses[-1]:.6f}; at most {used[step]:.2f} of what "
          f"the envelope allows, in step {step}")
    assert used[step] <= 1, f"{language}: the loss of step {step} is {losses[step]}, and PyTorch's {want[step]}"


def main(root, case, *arguments):
    sys.path.insert(0, os.path.join(root, "tests", "goldens"))
    from safetensors_file import load
    golden = load(os.path.join(root, "tests", "goldens", "heat.safetensors"))[0]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    start = list(arguments[split + 1:])
    first = None
    for argument in arguments[:split]:
        language, commands = argument.split("=", 1)
        with_network, untouched = (start + command.split(":") for command in commands.split(","))
        with tempfile.TemporaryDirectory(prefix="cltrain-heat-") as folder:
            alone, lines = output(untouched, folder), output(with_network, folder)
            if alone is None or lines is None:
                print(f"{language}: left out, there is no mpi4py (tools/test fetches it)")
                continue
            weights = b""
            if case == "serial":
                with open(os.path.join(folder, "heat.safetensors"), "rb") as file:
                    weights = file.read()
        simulation = [line for line in lines if not line.startswith("loss ")]
        assert simulation == alone and len(alone) >= 20, f"{language}: the simulation itself runs in another way"
        losses = [float(line[5:]) for line in lines if re.match(r"loss +\d", line)]
        check_losses(language, losses, golden, case)
        these = [f"{loss:.9g}" for loss in losses], alone, weights
        if first is None:
            first = language, these
        for what, mine, other in zip(("losses", "temperatures", "weights"), these, first[1]):
            assert mine == other, f"the {what} of {language} and {first[0]} differ"
    assert first, "no program ran"


if __name__ == "__main__":
    main(*sys.argv[1:])
