"""What mpiexec says about ranks that ended badly, and which words it must not see: MPICH's and Open MPI's."""
import re

OWN_CODES = (1, 2, 75, 130, 143) # of cltrain, which has printed a line of its own

# MPICH names the process. Open MPI names the rank; its version 4.1 prints 0 instead of the process.
KILLED = [re.compile(rb"PID (?P<pid>\d+) RUNNING AT [^\n]*\n[^\n]*EXIT CODE: (?P<code>\d+)"
                     rb"(?:(?s:.*?)\(signal (?P<signal>\d+)\))?"),
          re.compile(rb"process rank (?P<rank>\d+) with PID \d+ on node \S+\s+exited on\s+signal (?P<signal>\d+)"),
          re.compile(rb"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"),
          re.compile(rb"due to process rank (?P<rank>\d+) with PID \d+ on\s+node \S+ exiting improperly")]
# The message of MPICH's mpiexec if its helper ended, and the ranks after it.
LOST_HELPER = re.compile(rb"control_cb \([^)]*\): assert \(!closed\) failed")


def endings(text):
    """Yields the rank (MPICH: None), the process (Open MPI: None), what happened, and the signal or 0."""
    for pattern in KILLED:
        for match in pattern.finditer(text):
            found = {name: int(value) for name, value in match.groupdict().items() if value is not None}
            number, code, rank = found.get("signal", 0), found.get("code"), found.get("rank")
            # Open MPI also reports ranks that have said themselves why they end.
            if rank is not None and not number and code in OWN_CODES:
                continue
            yield rank, found.get("pid"), (f"was killed by signal {number}" if number else
                                           f"ended with code {code}" if code is not None else "ended by itself"), number


def passed_on(arguments):
    """Returns the arguments in a form that every mpiexec passes on. Open MPI 4 takes the words `--tune VALUE` for an
    option of its own, also behind the program, and reports that there is no such file."""
    words = []
    for word in arguments:
        if words and words[-1] == "--tune":
            words[-1] += "=" + word
        else:
            words.append(word)
    return words
