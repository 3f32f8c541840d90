"""The cache under attack: processes killed while they write, full disks, entries and folders that others made or changed.

Whatever happens there: no wrong payload is given back, nothing raises but `KgenError`, one warning a process tells of what is lost,
and what is left behind is bounded.  The default run works without torch; `-m slow` has 64 processes with real kernels.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from kgen.runtime import build, cache
from tests.conftest import ROOT

NOBODY = 65534
root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root, to be someone else")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A cache folder that is not there yet; this process forgets the one it had, and what it told."""
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path / "kgen"))
    cache.folder.cache_clear()
    cache._told.clear()
    yield tmp_path / "kgen"
    cache.folder.cache_clear()
    cache._told.clear()


def payload(name: str, size: int = 100_000) -> bytes:
    return hashlib.shake_128(name.encode()).digest(size)


def used(name: str = "entry", suffix: str = ".so") -> list[str]:
    """Reads and writes an entry twice, as a build does; the warnings, of which there is at most one.  Raises where a payload is wrong."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            found = cache.read(name, suffix)
            assert found is None or found[1] == payload(name)
            path = cache.write(name, suffix, payload(name))
            again = cache.read(name, suffix)
            assert again is None or again[1] == payload(name) and path in (None, again[0])
    assert len(told) <= 1, [str(w.message) for w in told]
    return [str(w.message) for w in told]


# ------------------------------------------------------------------------------------------------ entries


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


DAMAGES = {
    "empty": lambda p, data: p.write_bytes(b""),
    "no payload": lambda p, data: p.write_bytes(data[-32:]),
    "no digest": lambda p, data: p.write_bytes(data[:-32]),
    "digest of nothing": lambda p, data: p.write_bytes(hashlib.sha256(b"").digest()),
    "digest of its payload alone": lambda p, data: p.write_bytes(data[:-32] + hashlib.sha256(data[:-32]).digest()),
    "twice": lambda p, data: p.write_bytes(data * 2),
    "longer": lambda p, data: p.write_bytes(data + b"\0"),
    "shifted": lambda p, data: p.write_bytes(b"\0" + data),
    "zeros": lambda p, data: p.write_bytes(bytes(len(data))),
    "a hole": lambda p, data: p.write_bytes(data[:4096] + bytes(4096) + data[8192:]),
    "another's": lambda p, data: shutil.copyfile(cache.write("other", p.suffix, payload("other")), p),
    "another kind's": lambda p, data: shutil.copyfile(cache.write(p.stem, ".else", payload("other")), p),
    "a folder": lambda p, data: (p.unlink(), p.mkdir(), (p / "x").touch()),
    "a pipe": lambda p, data: (p.unlink(), _fifo(p)),
    "a dangling link": lambda p, data: (p.unlink(), p.symlink_to("nowhere")),
    "a link to itself": lambda p, data: (p.unlink(), p.symlink_to(p.name)),
    "a link to a device": lambda p, data: (p.unlink(), p.symlink_to("/dev/zero")),
    "a link to its like": lambda p, data: (p.rename(p.with_name("moved")), p.symlink_to("moved")),
    "huge": lambda p, data: _huge(p),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".so", ".cubin", ".k"])
def test_a_damaged_entry_counts_as_missing_and_is_written_again(place: Path, suffix: str, damage: str) -> None:
    path = cache.write("entry", suffix, payload("entry"))
    DAMAGES[damage](path, path.read_bytes())
    start = time.monotonic()
    assert cache.read("entry", suffix) is None
    assert time.monotonic() - start < 2
    told = used(suffix=suffix)
    assert len(told) == (damage == "a folder")  # which no file can replace
    assert (cache.read("entry", suffix) is not None) == (damage != "a folder")


def test_no_flipped_bit_and_no_truncation_is_taken(place: Path, request) -> None:
    path = cache.write("entry", ".cubin", payload("entry", 5000))
    data, rng = path.read_bytes(), random.Random(0)
    for k in range(20_000 if request.config.getoption("--fuzz") else 300):
        made = bytearray(data)
        if k % 2:
            made[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            del made[rng.randrange(len(data)) :]
        path.write_bytes(made)
        assert cache.read("entry", ".cubin") is None


@root
def test_an_entry_of_anothers_is_not_taken(place: Path) -> None:
    path = cache.write("entry", ".so", payload("entry"))
    os.chown(path, NOBODY, NOBODY)
    assert cache.read("entry", ".so") is None
    assert used() == []


SOURCE = 'extern "C" int answer() {{ return {}; }}'


@pytest.mark.parametrize("damage", ["no digest", "zeros", "another's", "a folder", "a link to its like"])
def test_a_library_is_built_again(place: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCE.format(42)
    built = []
    monkeypatch.setattr(build, "build", lambda source, name: built.append(name) or _small(source, name))
    assert build.library.__wrapped__(source, "f").answer() == 42
    (path,) = place.glob("*.so")
    data = path.read_bytes()
    path.unlink()  # what is loaded stays as it is
    path.write_bytes(data)
    DAMAGES[damage](path, data)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert build.library.__wrapped__(source, "f").answer() == 42
    assert len(built) == 2 and len(told) == (damage == "a folder")


def _small(source: str, name: str) -> bytes:
    """A library built without optimisation, which is quicker."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "f.cpp").write_text(source)
        subprocess.run([build.compiler(), "-shared", "-fPIC", "-O0", "f.cpp", "-o", "f.so"], cwd=folder, check=True)
        return (Path(folder) / "f.so").read_bytes()


# ------------------------------------------------------------------------------------------------ disks


@pytest.mark.parametrize(
    "what", ["tempfile.mkstemp", "os.fdopen", "os.chmod", "os.replace", "os.scandir", "os.unlink", "os.open", "os.fstat"]
)
@pytest.mark.parametrize("number", [28, 5, 13, 30, 122])  # ENOSPC, EIO, EACCES, EROFS, EDQUOT
def test_what_fails_on_a_disk_loses_the_entry_alone(place: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: int) -> None:
    cache.write("before", ".so", payload("before"))
    module, name = what.split(".")

    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr({"os": os, "tempfile": tempfile}[module], name, fails)
        told = used()
    writes = what not in ("os.unlink", "os.fstat")  # nothing to remove; reads alone
    assert len(told) == writes and (not told or os.strerror(number) in told[0])
    assert cache.read("before", ".so")[1] == payload("before")
    left = [p.name for p in place.iterdir() if p.name.startswith(".writing-")]
    assert left == []


def alone(code: str, *before: str, **options) -> subprocess.CompletedProcess[str]:
    """Python code in a process of its own, with `payload` and `cache`; `before` is a command that it is an argument of."""
    head = "import hashlib, os, sys, time\nfrom pathlib import Path\nfrom kgen.runtime import build, cache\nfrom kgen.errors import KgenError\n"
    head += "def payload(name, size=100_000):\n    return hashlib.shake_128(name.encode()).digest(size)\n"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **options.pop("env", {})}
    env = {name: value for name, value in env.items() if value is not None}
    return subprocess.run([*before, sys.executable, "-c", head + code], capture_output=True, text=True, env=env, timeout=120, **options)


USE = """
for _ in range(3):
    found = cache.read("entry", ".so")
    assert found is None or found[1] == payload("entry")
    cache.write("entry", ".so", payload("entry"))
print(cache.read("entry", ".so") is not None, cache.folder())
"""


def warned(done: subprocess.CompletedProcess[str], count: int = 1) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("UserWarning") == count, done.stderr
    assert "Traceback" not in done.stderr


def test_a_limit_on_files_is_a_full_disk(place: Path) -> None:
    done = alone("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))" + USE)
    warned(done)
    assert done.stdout.startswith("False") and "File too large" in done.stderr
    assert list(place.iterdir()) == []


def mounted(options: str, folder: Path, code: str, **more) -> subprocess.CompletedProcess[str]:
    """Code in a process to which `folder` is a file system of its own."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    folder.mkdir(mode=0o700, exist_ok=True)
    shell = f'mount -t tmpfs -o {options},mode=0700 tmpfs "{folder}" || exit 77; exec "$@"'
    done = alone(code, "unshare", "-m", "sh", "-c", shell, "sh", **more)
    if done.returncode in (1, 77) and ("mount" in done.stderr or "unshare" in done.stderr):
        pytest.skip("cannot mount")
    return done


def test_a_full_disk(place: Path) -> None:
    done = mounted("size=64k", place, USE + "print(os.listdir(cache.folder()))")
    warned(done)
    assert done.stdout.startswith("False") and "No space left" in done.stderr and "[]" in done.stdout


def test_a_disk_without_inodes(place: Path) -> None:
    done = mounted("nr_inodes=1", place, USE)
    warned(done)
    assert done.stdout.startswith("False")


LIBRARY = f"""
source = '{SOURCE.format(42)}'
print(build.library(source, "f").answer())
"""


def test_a_disk_from_which_nothing_may_run(place: Path) -> None:
    done = mounted("noexec", place, LIBRARY)
    warned(done, 0)
    assert done.stdout == "42\n"


def test_no_room_to_build(place: Path, tmp_path: Path) -> None:
    code = "try:\n    build.library('int f;', 'f')\nexcept KgenError as error:\n    print(error)\n"
    done = mounted("size=4k,nr_inodes=2", tmp_path / "small", code, env={"TMPDIR": str(tmp_path / "small")})
    warned(done, 0)
    assert "cannot be built" in done.stdout or "does not build" in done.stdout, done.stdout


# ------------------------------------------------------------------------------------------------ folders


def _ends(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


FOLDERS = {  # what stands in the folder's place, and whether it is used
    "nothing": (lambda p: None, True),
    "a folder": (lambda p: p.mkdir(mode=0o700), True),
    "others may read it": (lambda p: p.mkdir(mode=0o755), True),
    "a file": (lambda p: p.write_text(""), False),
    "a pipe": (lambda p: _fifo(p), False),
    "a link to a folder": (lambda p: p.symlink_to(_ends(p.parent / "real")), False),
    "a dangling link": (lambda p: p.symlink_to("nowhere"), False),
    "a link to itself": (lambda p: p.symlink_to(p.name), False),
    "its group may write": (lambda p: (p.mkdir(), p.chmod(0o770)), False),
    "all may write": (lambda p: (p.mkdir(), p.chmod(0o777)), False),
    "all may write, sticky": (lambda p: (p.mkdir(), p.chmod(0o1777)), False),
    "all may replace it": (lambda p: (p.mkdir(mode=0o700), p.parent.chmod(0o777)), False),
    "in a sticky folder": (lambda p: (p.mkdir(mode=0o700), p.parent.chmod(0o1777)), True),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_what_stands_in_the_folders_place(place: Path, kind: str) -> None:
    make, taken = FOLDERS[kind]
    make(place)
    told = used()
    place.parent.chmod(0o700)
    assert len(told) == (not taken), told
    assert (cache.folder() is not None) == taken
    assert not taken or cache.read("entry", ".so") is not None


@root
def test_a_folder_of_anothers(place: Path) -> None:
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)
    assert len(used()) == 1 and list(place.iterdir()) == []


@pytest.mark.parametrize("named", ["/proc/kgen", "/dev/null/kgen", "x" * 300, "/" + "y/" * 3000, "/dev/null/\x1b[31m\n", "/sys/kgen"])
def test_a_place_where_no_folder_can_be(place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KGEN_CACHE_DIR", named)
    told = used()
    assert len(told) == 1 and all(c.isprintable() for c in told[0])


def test_a_relative_place_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KGEN_CACHE_DIR", "mine")
    assert used() == []
    monkeypatch.chdir("/")
    assert cache.read("entry", ".so") is not None and used() == []
    assert (tmp_path / "mine" / "entry.so").exists()


@pytest.fixture
def common():
    """A folder that every user reaches."""
    made = Path(tempfile.mkdtemp(prefix="kgen-test-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def as_nobody(code: str, **options) -> subprocess.CompletedProcess[str]:
    """Code in a process that becomes another user once all is imported."""
    become = f"import platformdirs, tempfile, warnings\nos.chdir('/')\nos.setgroups([])\nos.setgid({NOBODY})\nos.setuid({NOBODY})\n"
    return alone(become + code, **options)


@root
@pytest.mark.parametrize("kind", ["home is another's", "folder is read-only", "there is no home", "entries are read-only"])
def test_a_home_that_one_cannot_write(common: Path, kind: str) -> None:
    env = {"KGEN_CACHE_DIR": str(common / "kgen"), "HOME": str(common), "XDG_CACHE_HOME": None}
    works = kind == "entries are read-only"
    if kind == "there is no home":
        env |= {"KGEN_CACHE_DIR": None, "HOME": None}
    elif kind != "home is another's":
        (common / "kgen").mkdir()
        if works:
            (common / "kgen" / "entry.so").write_bytes(b"not to be written")
            (common / "kgen" / "entry.so").chmod(0o400)
        os.chown(common / "kgen", NOBODY, NOBODY)
        (common / "kgen").chmod(0o700 if works else 0o500)
    done = as_nobody(USE, env=env)
    warned(done, not works)
    assert done.stdout.startswith(str(works))


# ------------------------------------------------------------------------------------------------ processes


NURSERY = """
import random, signal
rng = random.Random({seed})
NAMES = [f"entry{{k}}" for k in range(6)]
cache.folder()

def work(seed):
    mine = random.Random(seed)
    for _ in range({rounds}):
        name = mine.choice(NAMES)
        found = cache.read(name, ".so")
        if found is not None and found[1] != payload(name):
            os._exit(3)
        if found is None or mine.random() < 0.3:
            cache.write(name, ".so", payload(name))
        if {removes} and mine.random() < 0.1:
            import shutil
            shutil.rmtree(cache.folder(), ignore_errors=True)
    os._exit(0)

waiting, killed, ends, number = set(), 0, [], 0
while number < {processes} or waiting:
    while number < {processes} and len(waiting) < 64:
        number += 1
        child = os.fork()
        if child == 0:
            try:
                work(number)
            except BaseException:
                import traceback
                traceback.print_exc()
            os._exit(4)
        waiting.add(child)
    if {kills} and waiting and rng.random() < 0.7:
        try:
            os.kill(rng.choice(sorted(waiting)), signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(rng.random() * 0.004)
    while waiting:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            break
        waiting.discard(child)
        killed += os.WIFSIGNALED(status)
        ends.append(os.waitstatus_to_exitcode(status))
print(killed, sorted(set(ends)))
"""


def test_64_processes_at_once_of_which_many_are_killed(place: Path, request) -> None:
    many = request.config.getoption("--fuzz")
    done = alone(NURSERY.format(seed=1, rounds=30, processes=5000 if many else 128, kills=True, removes=False))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    killed, ends = done.stdout.split(" ", 1)
    assert set(eval(ends)) <= {0, -9} and int(killed) > 10, done.stdout
    left = [p for p in place.iterdir() if p.name.startswith(".writing-")]
    assert len(left) <= int(killed)
    for path in place.glob("*.so"):
        assert cache.read(path.stem, ".so")[1] == payload(path.stem)
    for path in left:
        os.utime(path, (0, 0))
    assert used() == []
    assert not list(place.glob(".writing-*"))


def test_a_folder_that_is_removed_while_in_use(place: Path) -> None:
    done = alone(NURSERY.format(seed=2, rounds=20, processes=40, kills=False, removes=True))
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.split(" ", 1)[1].strip() == "[0]"
    assert done.stderr.count("UserWarning") <= 40  # one a process, at most
    shutil.rmtree(place, ignore_errors=True)


def test_a_library_whose_folder_goes_before_it_is_loaded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cache.write

    def gone(*args):
        made = real(*args)
        shutil.rmtree(place)
        return made

    monkeypatch.setattr(cache, "write", gone)
    monkeypatch.setattr(build, "build", _small)
    assert build.library.__wrapped__(SOURCE.format(7), "f").answer() == 7


def test_what_the_dead_left_is_removed_and_what_the_living_write_is_not(place: Path) -> None:
    used()
    now = time.time()
    for k, age in enumerate((0, -300, 300, 5_000, -5_000, 10**9, now)):  # seconds; clocks may differ by minutes
        (place / f".writing-{k}").write_bytes(b"x" * 100)
        os.utime(place / f".writing-{k}", (now - age, now - age))
    (place / ".writing-folder").mkdir()
    os.utime(place / ".writing-folder", (0, 0))
    assert used() == []
    assert sorted(p.name for p in place.glob(".writing-*")) == [".writing-0", ".writing-1", ".writing-2", ".writing-folder"]


KERNEL = """
import random, signal
import torch
import kgen

rng = random.Random(0)
TEXTS = ["f(x: T[...]) -> y: T[...]\\ny = x * 3 + 1", "g(x: T[..., N]) -> y: T[...]\\ny = sum[N](x)"]
x = torch.arange(12.0).reshape(3, 4)
WANTED = [x * 3 + 1, x.sum(-1)]


def work(seed):
    for k in random.Random(seed).sample((0, 1), 2):
        if not torch.equal(kgen.loads(TEXTS[k])(x), WANTED[k]):
            os._exit(3)
    os._exit(0)


waiting, killed, ends, number = {}, 0, [], 0
begun = time.time()
while number < 96 or waiting:
    while number < 96 and len(waiting) < 64:
        number += 1
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            try:
                work(number)
            except BaseException:
                import traceback
                traceback.print_exc()
            os._exit(4)
        waiting[child] = rng.random() * 60 if number % 3 == 0 else 1e9
    for child, after in list(waiting.items()):
        if time.time() - begun > after:
            waiting[child] = 1e9
            try:
                os.killpg(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
    time.sleep(0.05)
    while waiting:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            break
        waiting.pop(child, None)
        killed += os.WIFSIGNALED(status)
        ends.append(os.waitstatus_to_exitcode(status))
print(killed, sorted(set(ends)))
"""


@pytest.mark.slow
def test_64_processes_with_real_kernels_of_which_many_are_killed(place: Path, tmp_path: Path) -> None:
    """96 processes, 64 at a time, build and run the same two kernels; every third is killed within the first minute."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KGEN_CACHE_DIR": str(place), "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    code = "import os, time\n" + KERNEL
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=1800)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    killed, ends = done.stdout.split(" ", 1)
    assert set(eval(ends)) <= {0, -9}, done.stdout
    assert len(list(place.glob("*.so"))) == 2
    for path in place.glob("*.so"):
        assert cache.read(path.stem, ".so") is not None
    print(f"{killed} killed, {len(list(place.glob('.writing-*')))} leftovers")
