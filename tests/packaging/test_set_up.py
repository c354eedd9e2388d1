"""The Makefile's help, and the two scripts that prepare a machine, run against a made-up one."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / ".ci"
PHONY = re.compile(r"^\.PHONY: (.*)$", re.MULTILINE)

RECORDING_APT = """#!/bin/sh
echo "$@ runlevel=$RUNLEVEL frontend=$DEBIAN_FRONTEND policy=$("$POLICY_RC_D"; echo $?)" >>{log}
exit {code}
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A PATH of its own in a directory, with an apt-get that only notes how it was called."""

    directory: Path

    @property
    def policy(self) -> Path:
        """Where the machine's policy on starting daemons is."""
        return self.directory / "policy-rc.d"

    @property
    def installs(self) -> list[str]:
        """What apt-get was asked to do, in order."""
        log = self.directory / "log"
        return log.read_text().splitlines() if log.exists() else []

    def add_program(self, name: str, text: str = "#!/bin/sh\n") -> None:
        """Put a program on the machine's PATH."""
        program = self.directory / "bin" / name
        program.write_text(text)
        program.chmod(0o755)

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of the set-up scripts on this machine."""
        environment = {"PATH": str(self.directory / "bin"), "POLICY_RC_D": str(self.policy)}
        return subprocess.run(
            [SCRIPTS / script, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )


def new_machine(directory: Path, *, user: int, apt_exit: int = 0) -> Machine:
    """Return a machine on which we are the given user."""
    (directory / "bin").mkdir()
    machine = Machine(directory)
    for tool in ("sh", "rm", "chmod"):
        found = shutil.which(tool)
        assert found is not None
        (directory / "bin" / tool).symlink_to(found)
    machine.add_program("id", f"#!/bin/sh\necho {user}\n")
    machine.add_program("apt-get", RECORDING_APT.format(log=directory / "log", code=apt_exit))
    # An outer sudo must not be found through the directories that the script adds.
    machine.add_program("sudo", "#!/bin/sh\nexit 1\n")
    return machine


def test_help_lists_every_target() -> None:
    """`make` alone explains all targets, each in a few words, and sets nothing up."""
    outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    environment = {name: text for name, text in os.environ.items() if name not in outer}
    printed = subprocess.run(
        ["make"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split(maxsplit=2) for line in printed.splitlines()]
    named = PHONY.search((ROOT / "Makefile").read_text())
    assert named is not None
    targets = {each for each in named[1].split() if not each.endswith("-needs")}
    assert {"run", "demo", "test"} <= targets
    assert sorted(target for _, target, _ in lines) == sorted(targets)
    assert all(text for _, _, text in lines)


def test_nothing_is_installed_when_nothing_is_missing(tmp_path: Path) -> None:
    """A command that is there needs no package, and nothing is printed."""
    machine = new_machine(tmp_path, user=0)
    machine.add_program("no-such-gpg")
    done = machine.run("system-packages", "no-such-gpg:gnupg", "sh:dash")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.installs == []


def test_root_installs_only_what_is_missing_and_starts_nothing(tmp_path: Path) -> None:
    """Package lists first, then the missing packages, with daemon starts forbidden meanwhile."""
    machine = new_machine(tmp_path, user=0)
    done = machine.run("system-packages", "sh:dash", "no-such-gpg:gnupg", "no-such-knot:knot")
    assert done.returncode == 0, done.stderr
    update, install = machine.installs
    assert " update " in update
    assert "install --no-install-recommends gnupg knot runlevel=1" in install
    assert install.endswith("frontend=noninteractive policy=101")
    assert not machine.policy.exists()


def test_a_failed_installation_is_reported_and_leaves_no_policy(tmp_path: Path) -> None:
    """The exit code of apt-get comes through, and the machine is as before."""
    machine = new_machine(tmp_path, user=0, apt_exit=100)
    assert machine.run("system-packages", "no-such-gpg:gnupg").returncode == 100
    assert not machine.policy.exists()


def test_a_policy_of_the_machine_is_left_alone(tmp_path: Path) -> None:
    """What the operator decided about daemons is neither replaced nor removed."""
    machine = new_machine(tmp_path, user=0)
    machine.policy.write_text("#!/bin/sh\nexit 7\n")
    machine.policy.chmod(0o755)
    assert machine.run("system-packages", "no-such-gpg:gnupg").returncode == 0
    assert machine.installs[-1].endswith("policy=7")
    assert machine.policy.read_text() == "#!/bin/sh\nexit 7\n"


def test_without_rights_the_command_is_printed(tmp_path: Path) -> None:
    """An ordinary user without sudo reads what to run, and make stops there."""
    machine = new_machine(tmp_path, user=1000)
    done = machine.run("system-packages", "no-such-gpg:gnupg", "no-such-tor:tor")
    assert done.returncode == 1
    assert "apt-get install --no-install-recommends gnupg tor" in done.stderr
    assert machine.installs == []


def test_what_is_only_wanted_stops_nothing(tmp_path: Path) -> None:
    """Without rights, a package that is good to have is named, and set-up goes on."""
    machine = new_machine(tmp_path, user=1000)
    done = machine.run("system-packages", "--wanted", "no-such-cc:gcc", "no-such-cc:libc6-dev")
    assert done.returncode == 0
    assert "apt-get install --no-install-recommends gcc libc6-dev" in done.stderr
    assert "going on without" in done.stderr
    assert machine.installs == []


def test_what_is_wanted_is_installed_where_that_is_possible(tmp_path: Path) -> None:
    """Root gets the wanted packages like any others, and a failure is no failure of set-up."""
    machine = new_machine(tmp_path, user=0)
    assert machine.run("system-packages", "--wanted", "no-such-cc:gcc").returncode == 0
    assert "install --no-install-recommends gcc" in machine.installs[-1]
    machine.add_program("apt-get", RECORDING_APT.format(log=tmp_path / "log", code=100))
    assert machine.run("system-packages", "--wanted", "no-such-cc:gcc").returncode == 0


def test_sudo_without_a_password_is_used(tmp_path: Path) -> None:
    """A user who may become root does not have to: the script runs itself again as root."""
    machine = new_machine(tmp_path, user=1000)
    machine.add_program("sudo", '#!/bin/sh\n[ "$2" = true ] || printf "%s\\n" "$*"\n')
    done = machine.run("system-packages", "no-such-gpg:gnupg")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"-n {SCRIPTS / 'system-packages'} no-such-gpg:gnupg\n"


def test_a_system_without_apt_is_told_what_is_missing(tmp_path: Path) -> None:
    """Elsewhere than on Debian the names of the packages are the best advice there is."""
    machine = new_machine(tmp_path, user=0)
    (tmp_path / "bin" / "apt-get").unlink()
    done = machine.run("system-packages", "no-such-gpg:gnupg", "no-such-tor:tor")
    assert done.returncode == 1
    assert done.stderr.endswith("gnupg tor\n")


@pytest.mark.parametrize(
    ("python", "complaint", "advice"),
    [
        pytest.param(None, "there is no python3", "apt-get install python3 ", id="none"),
        pytest.param(
            'case "$2" in *version_info\\ *) exit 1;; esac; echo Python 3.9.2',
            "Python 3.9.2 is too old",
            "PYTHON=python3.11",
            id="old",
        ),
        pytest.param(
            'case "$2" in *ensurepip*) exit 1;; esac; echo 3.12',
            "ensurepip is missing",
            "apt-get install python3.12-venv",
            id="no-venv",
        ),
    ],
)
def test_a_python_that_will_not_do_is_explained(
    tmp_path: Path, python: str | None, complaint: str, advice: str
) -> None:
    """No Python, an old one, or one without venv: the message says what to install."""
    machine = new_machine(tmp_path, user=0)
    if python is not None:
        machine.add_program("python3", f"#!/bin/sh\n{python}\n")
    done = machine.run("new-venv", "python3", str(tmp_path / "venv"))
    assert done.returncode == 1
    assert complaint in done.stderr
    assert advice in done.stderr
    assert not (tmp_path / "venv").exists()
