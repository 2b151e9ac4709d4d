"""Workers of asynchronous jobs on other hosts: where they run, and how they begin and end there."""
import os
import shlex
import socket

from cltrain_guard import say
from cltrain_hosts import HostsError, read_hosts

SECRET = "CLTRAIN_SECRET"
UNREACHED = 255 # the code with which ssh itself fails
PASSED = ("CLTRAIN_", "CLT_", "POCL_", "OCL_") # variables that a remote worker gets, as with mpiexec

# Runs on the other host. The secret is the first line of its input, so no command line has it. The worker ends when the
# input does: if the launcher wants it, or if the launcher or the connection is gone.
SCRIPT = """IFS= read -r CLTRAIN_SECRET; export CLTRAIN_SECRET; exec 3<&0 </dev/null
cd {folder} || exit 1
{variables}
{command} 3<&- & worker=$!
(read -r _ <&3; kill $worker) >/dev/null 2>&1 & guard=$!
exec 3<&-
wait $worker; code=$?
kill $guard 2>/dev/null
exit $code"""

# A worker of a host with several has its part of the cores.
SHARE = """cores=$(($(nproc) / {slots})); [ $cores -gt 0 ] || cores=1
export POCL_MAX_PTHREAD_COUNT=$cores POCL_CPU_MAX_CU_COUNT=$cores"""


def is_here(host):
    """Whether a name of --hosts means this host."""
    own = socket.gethostname()
    return host in ("localhost", "127.0.0.1", own, own.split(".")[0], socket.getfqdn())


def remote_command(remote, host, command, slots):
    """Returns the words that start a command on a host. `slots`: workers that share its cores."""
    variables = [f"export {name}={shlex.quote(value)}" for name, value in sorted(os.environ.items())
                 if (name.startswith(PASSED) or name == "LD_LIBRARY_PATH") and name != SECRET]
    if slots > 1:
        variables.append(SHARE.format(slots=slots))
    script = SCRIPT.format(folder=shlex.quote(os.getcwd()), variables="\n".join(variables),
                           command=" ".join(map(shlex.quote, command)))
    return [*remote, host, f"exec sh -c {shlex.quote(script)}"]


class Places:
    """Where workers run: pairs of a host and a number on this host. The host None is this one, without --hosts."""

    def __init__(self, options):
        self.path, self.most = options.hosts, options.workers
        self.hosts = read_hosts(self.path) if self.path else {None: options.workers}
        self.stamp, self.complained = self.changed(), ""

    def changed(self):
        try:
            found = os.stat(self.path) if self.path else None
            return found and (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            return None

    def wanted(self):
        places = [(host, slot) for host, slots in self.hosts.items() for slot in range(slots)]
        return places[:self.most] if self.most else places

    def slots(self, host):
        return sum(place[0] == host for place in self.wanted())

    def poll(self):
        """Reads the file again if it has changed. Returns whether there are other hosts."""
        stamp = self.changed()
        if stamp == self.stamp:
            return False
        self.stamp = stamp
        try:
            self.hosts, self.complained = read_hosts(self.path), ""
            return True
        except HostsError as error: # for example, half of the file is written
            if str(error) != self.complained:
                say(f"{error}; the workers stay as they are")
            self.complained = str(error)
            return False
