"""How command lines, YAML and numbers of processes are read."""

import shlex

import pytest
from elastic_pytorch_client.migration.job_size import process_count
from elastic_pytorch_client.migration.launch import read_launch
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.shell_text import plain_words, take_options
from elastic_pytorch_client.migration.torchrun_options import UnknownOption, split_line
from elastic_pytorch_client.yaml_text import read_documents, write_documents


@pytest.mark.parametrize(
    ("words", "args", "options"),
    [
        ("train.py --nnodes=2", "train.py --nnodes=2", {}),
        ("--nnodes=2 train.py", "train.py", {"nnodes": "2"}),
        (
            "--nnodes 1:3 --rdzv_backend c10d train.py -x",
            "train.py -x",
            {"nnodes": "1:3", "rdzv-backend": "c10d"},
        ),
        (
            "--standalone --nproc_per_node=gpu -m a.b --c",
            "-m a.b --c",
            {"standalone": "", "nproc-per-node": "gpu"},
        ),
        ("--no-python --tee 3 run.sh", "--no-python --tee 3 run.sh", {}),
        ("--max-restarts 2 -- train.py", "train.py", {"max-restarts": "2"}),
    ],
)
def test_options_of_torchrun(words: str, args: str, options: dict[str, str]) -> None:
    line = split_line(words.split())
    assert (" ".join(line.kept), line.options) == (args, options)


def test_an_option_that_is_not_known_is_not_guessed() -> None:
    with pytest.raises(UnknownOption, match="--surprise"):
        split_line(["--surprise", "3", "train.py"])


@pytest.mark.parametrize(
    ("command", "args", "by"),
    [
        ("torchrun train.py", "train.py", "torchrun"),
        ("/opt/conda/bin/torchrun train.py", "train.py", "torchrun"),
        ("/opt/launch/bin/torchrun train.py", "train.py", "torchrun"),
        ("python3 -u -m torch.distributed.run train.py", "train.py", "torchrun"),
        ("python -m torch.distributed.launch --use_env train.py", "train.py", "torchrun"),
        ("python -u train.py -u", "train.py -u", "python"),
        ("python3.11 -m project.train", "-m project.train", "python"),
        ("python -O train.py", "--no-python python -O train.py", "python"),
        ("bash -c 'torchrun --node-rank=$JOB_COMPLETION_INDEX train.py'", "train.py", "torchrun"),
        ("bash -c 'exec torchrun \\\n  train.py'", "train.py", "torchrun"),
        ("""sh -ec 'python train.py --name "a b"'""", "train.py --name 'a b'", "python"),
        ("bash -lc 'python train.py'", "--no-python bash -lc 'python train.py'", "python"),
    ],
)
def test_commands_that_the_agent_starts_itself(command: str, args: str, by: str) -> None:
    launch = read_launch("container", shlex.split(command), [])
    assert (launch.command, shlex.join(launch.args), launch.by) == ((), args, by)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("./run.sh", "what ./run.sh does is not known: .*or `torchrun --no-python ./run.sh` if"),
        ("train a b", "what train does is not known: .*`torchrun --no-python train a …`"),
        (
            "bash run.sh",
            "what bash run.sh does is not known: write the torchrun or Python command that it "
            "runs in its place$",
        ),
        ("bash -c './run.sh && date'", "what ./run.sh && date does is not known"),
        (f"bash -c './{'run' * 30}.sh a; date'", "what … does is not known"),
        (
            "torchrun --surprise 3 train.py",
            "--surprise is not a known option of torchrun: take it away",
        ),
        (
            "bash -c 'torchrun --surprise 3 train.py; echo $?'",
            "calls torchrun in a way that is not known",
        ),
        (r"bash -c 'python t.py --rank \$RANK'", r"passes the text \$RANK, not its value"),
        (
            r"bash -c 'date; torchrun t.py --rank \${LOCAL_RANK}'",
            r"passes the text \$LOCAL_RANK, not its value",
        ),
        ("accelerate launch train.py", "Options of Accelerate"),
        ("deepspeed train.py", "`deepspeed` starts"),
        ("python", "without a script"),
        ("torchrun --nnodes=2", "without a script"),
        ("bash -c 'python prepare.py && accelerate launch train.py'", "Options of Accelerate"),
        ("python train.py '--rank=$(RANK)'", r'os.environ\["RANK"\]'),
        ("sh -c 'python train.py --rank=$(RANK) $X'", r'os.environ\["RANK"\]'),
    ],
)
def test_a_command_that_may_start_no_training_is_refused(command: str, words: str) -> None:
    with pytest.raises(CannotMigrate, match=words):
        read_launch("container", shlex.split(command), [])


@pytest.mark.parametrize(
    ("command", "args", "words"),
    [([], ["--epochs=1"], "ENTRYPOINT"), (["python", "train.py", 3], [], "put it in quotes")],
)
def test_arguments_that_need_a_decision(command: list[str], args: list[str], words: str) -> None:
    with pytest.raises(CannotMigrate, match=words):
        read_launch("container", command, args)


def test_a_package_of_a_launchers_name_is_no_launcher() -> None:
    command = ["bash", "-c", "pip install deepspeed && python train.py"]
    launch = read_launch("container", command, [])
    assert launch.args[0] == "--no-python"


def test_arguments_that_start_the_training_themselves() -> None:
    launch = read_launch("container", [], ["torchrun", "train.py"])
    assert launch.args == ("train.py",)
    assert "ENTRYPOINT does not run" in launch.remarks[0]


def test_the_entrypoint_of_an_image() -> None:
    launch = read_launch("container", [], ["--epochs=1"], ["python", "/var/mnist.py"])
    assert launch.args == ("/var/mnist.py", "--epochs=1")


def test_launch_of_torch_gives_the_script_its_local_rank() -> None:
    command = "python -m torch.distributed.launch --nnodes=2 -m a.b --x"
    launch = read_launch("container", command.split(), [])
    assert launch.args == ("-m", "a.b", "--local-rank=${local_rank}", "--x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python train.py", ["python", "train.py"]),
        ("python train.py --lr '0.1' \\\n  --x=a", ["python", "train.py", "--lr", "0.1", "--x=a"]),
        ("cd /work && python train.py", None),
        ("python train.py > log", None),
        ("python train.py --data $DATA", None),
        ("A=1 python train.py", None),
        ("python train.py 'unclosed", None),
        ("python a.py\npython b.py", None),
        ("python *.py", None),
    ],
)
def test_a_shell_string_that_is_one_plain_command(text: str, words: list[str] | None) -> None:
    assert plain_words(text) == words


@pytest.mark.parametrize(
    ("text", "rest", "options"),
    [
        (
            "cd /w && torchrun --nnodes=2 --node_rank=$RANK train.py",
            "cd /w && torchrun train.py",
            ["nnodes", "node-rank"],
        ),
        (
            "torchrun --nproc-per-node $N train.py | tee log",
            "torchrun --nproc-per-node $N train.py | tee log",
            [],
        ),
        (
            "torchrun --nproc_per_node=4 \\\n  --master_port 1 \\\n  train.py\necho --nnodes=2",
            "torchrun \\\n  train.py\necho --nnodes=2",
            ["master-port", "nproc-per-node"],
        ),
        (
            "x; python -m torch.distributed.run --rdzv-id='a b' t.py",
            "x; python -m torch.distributed.run t.py",
            ["rdzv-id"],
        ),
        (
            "torchrun --nproc-per-node=$N --nnodes=2 --rdzv-id 7 train.py",
            "torchrun --nproc-per-node=$N train.py",
            ["nnodes", "rdzv-id"],
        ),
        ("my-torchrun --nnodes=2 train.py", None, []),
        ("echo hello", None, []),
    ],
)
def test_options_are_taken_out_of_a_shell_string(
    text: str, rest: str | None, options: list[str]
) -> None:
    taken = take_options(text)
    assert (None if taken is None else taken.text) == rest
    assert sorted(taken.options if taken else []) == options


@pytest.mark.parametrize(
    ("given", "started_by", "accelerators", "count"),
    [
        ("8", "torchrun", 8, 8),
        ("auto", "torchrun", 8, None),
        ("auto", "torchrun", 0, "auto"),
        ("gpu", "torchrun", 0, "gpu"),
        ("gpu", "torchrun", 2, None),
        ("cpu", "torchrun", 2, "cpu"),
        ("$N", "torchrun", 0, None),
        ("auto", "python", 0, None),
        ("auto", "python", 1, None),
        ("auto", "python", 8, 1),
        ("8", "python", 0, None),
    ],
)
def test_processes_in_each_pod(
    given: str, started_by: str, accelerators: int, count: int | str | None
) -> None:
    found = process_count(
        "spec.nprocPerNode",
        given,
        started_by=started_by,
        accelerators=accelerators,
        remarks=Remarks(),
    )
    assert found == count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:3", "1:3"),
        ("1e-4", 1e-4),
        ("'1e-4'", "1e-4"),
        ("'8'", "8"),
        ("2026-05-01", "2026-05-01"),
        ("0644", 0o644),
        ("'y'", "y"),
        ("'true'", "true"),
        ("1.5", 1.5),
        (".inf", float("inf")),
        ("1500m", "1500m"),
    ],
)
def test_yaml_is_read_and_written_as_kubernetes_reads_it(text: str, value: object) -> None:
    assert read_documents(f"a: {text}") == [{"a": value}]
    assert read_documents(write_documents([{"a": value}])) == [{"a": value}]
    if isinstance(value, str) and text.startswith("'"):
        assert write_documents([{"a": value}]) == f"a: {text}\n"
