import gzip
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch.failures.failure import describe

from tests.waiting import until
from tests.worker_image.agents import has_ended

pytestmark = pytest.mark.process


class Outcome:
    def __init__(self, result: "subprocess.CompletedProcess[str]", error_file: Path) -> None:
        self.code, self.out, self.err = result.returncode, result.stdout, result.stderr
        self.error: Any = json.loads(error_file.read_text()) if error_file.exists() else None


def run(directory: Path, command: list[str], **environment: str) -> Outcome:
    error_file = directory / "error.json"
    error_file.unlink(missing_ok=True)
    environ = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(error_file), **environment}
    result = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=environ,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        input="in\n",
    )
    return Outcome(result, error_file)


def as_worker(mode: str, target: str, *arguments: str) -> list[str]:
    # `python -m elastic_pytorch.agent` has taken the working directory from the path
    start = (
        "import sys; del sys.path[0]; from elastic_pytorch.processes.run_script import "
        "run_script; run_script(*sys.argv[1:])"
    )
    return ["-c", start, mode, target, *arguments]


def script_of(directory: Path, source: str) -> str:
    (directory / "sub").mkdir(exist_ok=True)
    (directory / "sub" / "script.py").write_text(textwrap.dedent(source))
    return "sub/script.py"


def in_a_worker(directory: Path, source: str, *arguments: str) -> Outcome:
    return run(directory, as_worker("script", script_of(directory, source), *arguments))


def both(directory: Path, source: str, *arguments: str) -> tuple[Outcome, Outcome]:
    return run(directory, [script_of(directory, source), *arguments]), in_a_worker(
        directory, source, *arguments
    )


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


SAME = {
    "what a script sees of itself": """
        import os, sys
        print(__name__, __file__, __spec__, __package__, sys.argv, sys.path[0], os.getcwd())
        print(type(__builtins__).__name__, sys.modules["__main__"].__dict__ is globals(), __doc__)
    """,
    "a module beside the script": """
        import pathlib, sys
        pathlib.Path(sys.path[0], "beside.py").write_text("x = 5")
        import beside
        print(beside.x)
    """,
    "stdin": "print(input())",
    "returning": "print('done')",
    "exit without a code": "import sys; sys.exit()",
    "exit with 0": "import sys; sys.exit(0)",
    "exit with 7": "import sys; sys.exit(7)",
    "exit with 263": "import sys; sys.exit(263)",
    "exit with a text": "import sys; sys.exit('no data')",
    "an exception": "def f(x):\n    return 1 / x\nf(0)",
    "a chain of exceptions": """
        def f():
            try:
                {}["a"]
            except KeyError as error:
                raise ValueError("no a") from error
        try:
            f()
        except ValueError:
            raise RuntimeError("and so")
    """,
    "a group of exceptions": "raise ExceptionGroup('all', [ValueError(1), TypeError(2)])",
    "a syntax error": "x = 5\nif x\n    pass\n",
    "an encoding": "# -*- coding: latin-1 -*-\nprint('a')",
    "an excepthook of its own": "import sys; sys.excepthook = lambda *a: "
    "print('hook', a[0].__name__, file=sys.stderr); 1 / 0",
    "an excepthook that raises": """
        import sys
        def hook(*args):
            raise LookupError("no tracker")
        sys.excepthook = hook
        f = open("left", "w")
        f.write("written")
        raise ValueError("boom")
    """,
    "an excepthook that exits": """
        import sys
        sys.excepthook = lambda *a: sys.exit(7)
        f = open("left", "w")
        f.write("written")
        1 / 0
    """,
    "no excepthook": "import sys; del sys.excepthook; 1 / 0",
    "an exception that has no words": """
        class Wordless(Exception):
            def __str__(self):
                raise ValueError
        f = open("left", "w")
        f.write("written")
        raise Wordless
    """,
    "exit handlers, threads and buffers": """
        import atexit, sys, threading, time
        atexit.register(print, "first registered")
        atexit.register(print, "last registered")
        def late():
            time.sleep(0.2)
            print("thread")
        threading.Thread(target=late).start()
        sys.stdout.write("no newline")
    """,
    "exit handlers and threads where there is no stdout": """
        import atexit, sys, threading, time
        def late():
            time.sleep(0.2)
            print("thread", file=sys.stderr)
        atexit.register(print, "handler", file=sys.stderr)
        threading.Thread(target=late).start()
        sys.stdout = None
    """,
    "an exit handler that raises": "import atexit\n@atexit.register\ndef f():\n    1 / 0\n"
    "print('end')",
    "a file left open": """
        f = open("left", "w")
        f.write("written")
        import atexit, gzip
        g = gzip.open("left.gz", "wt")
        g.write("zipped")
    """,
    "start method not chosen yet": """
        import multiprocessing
        multiprocessing.set_start_method("spawn")
        print(multiprocessing.get_start_method(), multiprocessing.parent_process())
    """,
    "a spawned process": """
        import multiprocessing
        class Thing:
            def __init__(self, x): self.x = x
        def work(queue, thing): queue.put(thing.x + 1)
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.SimpleQueue()
            process = context.Process(target=work, args=(queue, Thing(4)))
            process.start()
            print(queue.get())
            process.join()
    """,
    "a forked pool": """
        import multiprocessing
        def work(x): return x * x
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(work, range(4)))
    """,
    "pickling what the script defines": """
        import pickle
        class Thing: pass
        print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, Thing.__module__)
    """,
    "signals": "import signal; print(signal.getsignal(signal.SIGTERM), "
    "signal.getsignal(signal.SIGINT) is signal.default_int_handler)",
    "source for inspect": "import inspect\ndef f(): pass\nprint(inspect.getsource(f))",
}


@pytest.mark.parametrize("source", SAME.values(), ids=SAME.keys())
def test_a_script_runs_as_under_python(tmp_path: Path, source: str) -> None:
    there, here = both(tmp_path, source, "--lr", "0.1", "")
    assert here.out == there.out
    assert without_addresses(here.err) == without_addresses(there.err)
    assert here.code == there.code
    left = tmp_path / "left"
    if left.exists():
        assert left.read_text() == "written"
    if (tmp_path / "left.gz").exists():
        with gzip.open(tmp_path / "left.gz", "rt") as zipped:
            assert zipped.read() == "zipped"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("sys.stderr.close(); sys.exit('no')", 1),
        ("sys.stderr = None; sys.exit('no')", 1),
        ("sys.stderr.close(); sys.exit(3)", 3),
        ("sys.stderr.close(); 1 / 0", 1),
        ("sys.exit(type('Wordless', (), {'__str__': lambda self: 1 / 0})())", 1),
    ],
)
def test_end_is_carried_out_where_nothing_can_be_printed(
    tmp_path: Path, source: str, code: int
) -> None:
    there, here = both(tmp_path, f"import sys; f = open('left', 'w'); f.write('written'); {source}")
    assert (here.code, there.code) == (code, code)
    assert (tmp_path / "left").read_text() == "written"


def test_stdout_that_cannot_be_flushed_is_no_reason_to_skip_the_end(tmp_path: Path) -> None:
    source = (
        "import atexit, sys; atexit.register(print, 'handler', file=sys.stderr); "
        "sys.stdout = object()"
    )
    there, here = both(tmp_path, source)
    assert "handler" in there.err and "handler" in here.err
    assert here.code == there.code == 120, "Python's own for output that may be lost"


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    there = run(tmp_path, ["nothing.py"])
    here = run(tmp_path, as_worker("script", "nothing.py"))
    assert (here.code, there.code) == (2, 2)
    # What comes before is the interpreter's path.
    assert here.err.partition(": ")[2] == there.err.partition(": ")[2]
    assert str(tmp_path / "nothing.py") in here.error["message"]["message"]


def test_a_module_runs_as_under_python_m(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("x = 5")
    (package / "train.py").write_text(
        "import sys\nfrom .other import x\nprint(__name__, __spec__.name, __package__, sys.argv, "
        "sys.path[0], x)\n1 / (len(sys.argv) - 1)"
    )
    for arguments in (["a"], []):
        there = run(tmp_path, ["-m", "pkg.train", *arguments])
        here = run(tmp_path, as_worker("module", "pkg.train", *arguments))
        assert (here.code, here.out, here.err) == (there.code, there.out, there.err)
    for name in ("pkg.nothing", "nothing"):
        there, here = run(tmp_path, ["-m", name]), run(tmp_path, as_worker("module", name))
        assert (here.code, here.err) == (there.code, there.err)


def test_a_directory_runs_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(
        "import sys; print(__name__, sys.argv, sys.path[0])"
    )
    there, here = run(tmp_path, ["app", "x"]), run(tmp_path, as_worker("script", "app", "x"))
    assert (here.code, here.out, here.err) == (there.code, there.out, there.err)


def test_an_exception_is_recorded_as_record_does(tmp_path: Path) -> None:
    here = in_a_worker(tmp_path, "raise ValueError('boom at step 5')")
    assert here.error["message"]["message"] == "ValueError: boom at step 5"
    assert here.error["message"]["extraInfo"]["py_callstack"] == here.err
    assert int(here.error["message"]["extraInfo"]["timestamp"]) > 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import sys; sys.excepthook = lambda *a: [][0]; raise ValueError('boom')",
            "ValueError: boom",
        ),
        (
            "import os, sys; sys.excepthook = lambda *a: os._exit(3); raise ValueError('boom')",
            "ValueError: boom",
        ),
        (
            "class Wordless(Exception):\n    __str__ = None\nraise Wordless",
            "Wordless: <exception str() failed>",
        ),
        ("import sys; sys.stderr.close(); sys.exit('no data')", "SystemExit: no data"),
        ("raise ValueError", "ValueError"),
        ("assert 1 == 2", "AssertionError"),
    ],
)
def test_root_cause_is_recorded_whatever_the_hook_does(
    tmp_path: Path, source: str, message: str
) -> None:
    assert in_a_worker(tmp_path, source).error["message"]["message"] == message


@pytest.mark.parametrize("character", ["x", "\\udcff", "\\0", "ä"])
def test_record_of_an_exception_of_megabytes_can_be_read(tmp_path: Path, character: str) -> None:
    in_a_worker(tmp_path, f"raise ValueError('boom ' + '{character}' * 2_000_000)")
    error_file = tmp_path / "error.json"
    found = describe(local_rank=0, rank=0, pid=1, exit_code=1, error_file=str(error_file))
    assert found.exception == "ValueError"
    assert found.message.startswith("ValueError: boom ")
    assert "script.py" in json.loads(error_file.read_text())["message"]["extraInfo"]["py_callstack"]


def test_what_the_script_has_recorded_stands(tmp_path: Path) -> None:
    source = (
        "import os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{\"message\": "
        '"mine"}\'); 1 / 0'
    )
    assert in_a_worker(tmp_path, source).error == {"message": "mine"}


def test_an_exit_without_error_records_nothing(tmp_path: Path) -> None:
    assert in_a_worker(tmp_path, "raise SystemExit(3)").error is None


def test_an_interrupt_ends_with_130(tmp_path: Path) -> None:
    here = in_a_worker(
        tmp_path, "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)"
    )
    assert here.code == 130
    assert "KeyboardInterrupt" in here.err


def test_output_comes_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import time; print('here', flush=False); time.sleep(60)")
    with subprocess.Popen(
        [sys.executable, *as_worker("script", "script.py")],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.kill()


def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os, time; print(os.getpid()); time.sleep(60)")
    worker = [sys.executable, *as_worker("script", "script.py")]
    parent = f"import subprocess, time; subprocess.Popen({worker!r}); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", parent], cwd=tmp_path, text=True, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        until(lambda: has_ended(worker), "the worker's end")
