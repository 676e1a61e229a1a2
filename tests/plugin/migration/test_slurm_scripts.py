"""How batch scripts of Slurm are read: their options, what they ask for, and their commands."""

import re

import pytest
from elastic_pytorch_client.migration.documents import migrate_script
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.slurm.allocation import read_allocation, seconds_of
from elastic_pytorch_client.migration.sources.slurm.commands import (
    read_commands,
    resolve,
    split_commands,
)
from elastic_pytorch_client.migration.sources.slurm.script import read_options, read_script

from tests.faults import assert_none


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("--nodes=2", {"nodes": "2"}),
        ("--nodes 2  # as many as there are", {"nodes": "2"}),
        ("-N2 -t 10", {"nodes": "2", "time": "10"}),
        ("--exclusive --mem=4G", {"exclusive": "", "mem": "4G"}),
        ("--job-name='a b'", {"job-name": "a b"}),
    ],
)
def test_options_of_sbatch(text: str, options: dict[str, str]) -> None:
    assert read_options(text) == options


def test_options_after_the_first_command_and_commented_ones_do_not_count() -> None:
    script = read_script("#!/bin/bash\n#SBATCH -N 2\n##SBATCH -n 4\nset -e\n#SBATCH -N 3\n")
    assert script.options == {"nodes": "2"}
    assert [(command.line, command.text) for command in script.commands] == [(4, "set -e")]


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("A=( # it's\n 1 '#2' 3#4 # \"5\n # 6\n)", "A=(1 '#2' 3#4)"),
        ("export A+=(\n 1\n)", "export A+=(1)"),
        ("readonly -a A=(\n 1 \\\n)", "readonly -a A=(1)"),
        ("srun bash -c '\n cd /a\n b \"c'", "srun bash -c '\n cd /a\n b \"c'"),
        ("echo it\\'s # don't\n", "echo it\\'s"),
        ('echo "a\\"b" \'"\'\n', 'echo "a\\"b" \'"\''),
    ],
)
def test_lines_that_are_one_command(text: str, joined: str) -> None:
    assert [command.text for command in read_script(text).commands] == [joined]


def test_commands_are_joined_and_their_place_is_known() -> None:
    text = (
        'A=(\n 1\n 2\n)\nB="x\n y"\ncat <<EOF > f\ntorchrun x\nEOF\nif true; then\n  srun a\nfi\n'
        "f() { b; }\nsrun \\\n  c\n"
    )
    found = [(command.line, command.text, command.nested) for command in read_script(text).commands]
    assert found == [
        (1, "A=(1 2)", False),
        (5, 'B="x  y"', False),
        (7, "cat", False),
        (10, "true", True),
        (11, "srun a", True),
        (13, "b", True),
        (14, "srun c", False),
    ]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("2:00:00", 7200),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("00-05:00:00", 18000),
        ("UNLIMITED", None),
        ("0", None),
    ],
)
def test_times(time: str, seconds: int | None) -> None:
    assert seconds_of(time) == seconds


@pytest.mark.parametrize("time", ["soon", "1:2:3:4", "x-1", "1-"])
def test_what_is_no_time(time: str) -> None:
    with pytest.raises(CannotMigrate, match="--time"):
        seconds_of(time)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", (1, 1, 0, 0, "")),
        ("-N 4 --ntasks-per-node=1 --gpus-per-node=8 -c 16 --mem=64G", (4, 1, 8, 16, "64Gi")),
        (
            "-N 2 --gres=gpu:a100:4 --mem-per-cpu=4000 --ntasks-per-node=4 --cpus-per-task=8",
            (2, 4, 4, 32, "128000Mi"),
        ),
        ("-n 8 --ntasks-per-node=4 --gpus-per-task=1 --mem-per-gpu=10G", (2, 4, 4, 0, "40Gi")),
        ("-N 2 -G 16 --cpus-per-gpu=4 --mem=0", (2, 1, 8, 32, "")),
        ("-N 1 --gres=gpu,lustre:1", (1, 1, 1, 0, "")),
        ("-N 1 --gpus-per-node=v100", (1, 1, 1, 0, "")),
        ("-N 1 --gres=gpumem:40,gpu:2", (1, 1, 2, 0, "")),
    ],
)
def test_what_a_script_asks_for(text: str, asked: tuple[int | str, ...]) -> None:
    found = read_allocation(read_options(text), Remarks())
    assert (found.nodes, found.tasks, found.gpus, found.cpus, found.memory) == asked


@pytest.mark.parametrize(
    "text", ["--nodes=many", "--nodes=0", "--nodes=4-2", "--mem=much", "--cpus-per-task=$N"]
)
def test_an_option_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(CannotMigrate, match=text.partition("=")[0]):
        read_allocation(read_options(text), Remarks())


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a; b && c || d", ["a", "b", "c", "d"]),
        ("a 'x; y' > log 2>&1", ["a 'x; y'"]),
        ("a 2>&1 | tee log; b &", ["a", "b"]),
        ("a --epochs 1; b 2 | c", ["a --epochs 1", "b 2"]),
        ("a --epochs 1", ["a --epochs 1"]),
        ("a --epochs 1 > log", ["a --epochs 1"]),
        ("a $(b; c) # d; e", ["a $(b; c)"]),
    ],
)
def test_commands_of_a_line(text: str, commands: list[str]) -> None:
    assert list(split_commands(text)) == commands


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("$A ${A} ${A:-x}", "1 1 1"),
        ("$B ${B} ${B:-x} ${B-y}", "$B ${B} x y"),
        ('"${L[@]}" ${M[@]}', "a b ${M[@]}"),
        ('"x ${L[@]}" "${L[*]} y"', '"x a b" "a b y"'),
        ("$AB $(A) $1", "$AB $(A) $1"),
    ],
)
def test_variables_of_a_script(text: str, resolved: str) -> None:
    assert resolve(text, {"A": "1", "L[@]": "a b"}) == resolved


@pytest.mark.parametrize(
    ("script", "text", "environment"),
    [
        ("srun torchrun train.py", "torchrun train.py", {}),
        (
            "A=1\nexport B=$A C='x y'\nexport A\ntorchrun $C",
            "torchrun x y",
            {"A": "1", "B": "1", "C": "x y"},
        ),
        ("export H=$(hostname)\nX=1 srun -l torchrun t.py $H", "torchrun t.py $H", {"X": "1"}),
        ("python a.py\nsrun python b.py", "python b.py", {}),
        ("srun hostname\nsrun bash -c 'torchrun t.py'", "torchrun t.py", {}),
        (
            'export L="torchrun --rdzv_endpoint $H:1 \\\n"\nC="$L t.py"\nsrun bash -c "$C"',
            "torchrun --rdzv_endpoint $H:1  t.py",
            {},
        ),
        ("exec python train.py", "python train.py", {}),
        ("exec srun python train.py", "python train.py", {}),
        (
            "srun python t.py --log $SLURM_NODEID_of ${SLURM_NODEID}_of",
            "python t.py --log $SLURM_NODEID_of ${GROUP_RANK}_of",
            {},
        ),
        ("P=/x:$P\nsrun torchrun t.py $P ${Q:-${R:-1}}", "torchrun t.py /x:$P 1", {}),
        (
            "declare -a A=(\n --lr 1 # slow\n # --steps 9\n)\nsrun torchrun t.py ${A[@]}",
            "torchrun t.py --lr 1",
            {},
        ),
        (
            "typeset A=(1)\nreadonly -a B=(2)\nlocal C=3\ntorchrun ${A[*]} ${B[@]} $C",
            "torchrun 1 2 3",
            {},
        ),
        ('A=(1)\nA+=(2)\nB=x\nB+=y\ntorchrun "${A[@]}" $B', "torchrun 1 2 xy", {}),
        (
            ': "${D:=/x}" "${I:=${D}/i.sqsh}"\nsrun --image $I torchrun t.py $I \\',
            "torchrun t.py /x/i.sqsh",
            {},
        ),
        (': "${A:=1}"\ntorchrun t.py $A ${B:=2} $B', "torchrun t.py 1 2 2", {}),
        ("declare -x A=1\ndeclare -r B=2\ntorchrun $B", "torchrun 2", {"A": "1"}),
        (
            'export L="torchrun --rdzv-id $(date)"\nsrun $L t.py',
            "torchrun --rdzv-id $(date) t.py",
            {},
        ),
        (
            'L="python -u"\nsrun bash -c "RANK=\\$SLURM_PROCID $L t.py"',
            "RANK=${RANK} python -u t.py",
            {},
        ),
        ('srun bash -c "python t.py \\$HOME \\${A}"', "python t.py $HOME ${A}", {}),
        (
            "srun bash -c 'RANK=\"$SLURM_PROCID\" A=1 python t.py'",
            'RANK="${RANK}" A=1 python t.py',
            {},
        ),
        (
            "srun mkdir -p /a\nfor i in 1; do\n  srun ./warm $i\ndone\nsrun torchrun t.py",
            "torchrun t.py",
            {},
        ),
    ],
)
def test_the_command_that_trains(script: str, text: str, environment: dict[str, str]) -> None:
    start, around = read_commands(read_script(script).commands, {}, Remarks())
    assert (start.text, around.environment) == (text, environment)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo hello", "starts no training"),
        ("srun torchrun a.py\nsrun torchrun b.py", "each starts a training"),
        ("while true; do\n  torchrun a.py\ndone", "in a loop"),
        ("#SBATCH -N 2\n#SBATCH hetjob\nsrun torchrun a.py", "workers are alike"),
        ("srun accelerate launch a.py", "Options of Accelerate go"),
        ("#SBATCH -N 2\nsrun torchrun --standalone a.py", "trains by itself"),
        ("srun torchrun a.py $SLURM_ARRAY_TASK_ID", "sweep"),
        ("#SBATCH --array=0-9\nsrun torchrun a.py", "sweep"),
        ("srun python -c 'clean()'\nf() {\n  srun composer train.py\n}\nf", "line 3: `composer`"),
        ("srun python -c 'clean()'\nsrun train --lr 1", "lines 1, 2: each starts a training"),
        ("python prepare.py\ncomposer train.py", "line 2: `composer`"),
        ("bash prepare.sh\npython train.py", "lines 1, 2: each starts a training"),
        ("torchrun a.py\naccelerate launch b.py", "lines 1, 2: each starts a training"),
        ("srun -N 2 ./train --lr 1", "line 1: what ./train does is not known"),
        ("date\nsrun bash run.sh", "line 2: what bash run.sh does is not known"),
        (
            'L="accelerate launch --ip $(hostname)"\nsrun $L t.py',
            "line 2: `accelerate` starts",
        ),
        ('A=$(args)\nsrun torchrun t.py "${A[@]}"', "line 2: ${A[@]} has no value here"),
        ("A=1\nfor i in 1\ndo\n A=$i\ndone\nsrun torchrun $A t.py", "line 6: $A has no value here"),
        ("A=1\n[ -f x ] && A=2\nsrun torchrun $A t.py", "line 3: $A has no value here"),
        ("srun torchrun a.py --x !(b|c) --y 1", "line 1: has what is no plain bash"),
        ("srun torchrun a.py || srun torchrun b.py", "line 1: the training starts in a loop"),
        ("case $1 in\n a) srun torchrun a.py;;\nesac", "line 2: the training starts in a loop"),
        (
            "if x; then\n  A=(1)\nfi\nsrun torchrun t.py ${A[@]}",
            "line 4: ${A[@]} has no value here",
        ),
        ("srun torchrun t.py ${A[0]} ${#B[@]}", "line 1: ${A[0]} and ${#B[@]} have no value here"),
        ("A=(1)\nA[0]=x\nsrun torchrun t.py ${A[@]}", "line 3: ${A[@]} has no value here"),
        (
            "A=(1)\nif x; then A+=(2); fi\nsrun torchrun t.py ${A[@]}",
            "line 3: ${A[@]} has no value here",
        ),
        (
            "C=a.yaml\nsrun torchrun t.py ${C%.yaml} ${C^^} ${#C}",
            "line 2: ${C%.yaml}, ${C^^} and ${#C} have no value here",
        ),
        ("srun $RUN t.py", "line 1: $RUN has no value here"),
        ("S=$(ls *.py)\nsrun torchrun --role a $S", "line 2: $S has no value here"),
        ("srun torchrun $OPTIONS t.py", "line 1: $OPTIONS has no value here"),
        ("srun bash -c 'cd /a; python -u ${S} 1'", "line 1: ${S} has no value here"),
        ("srun bash -c 'cd /a; A=1 ${RUN} t.py'", "line 1: ${RUN} has no value here"),
        ("srun python t.py --config $1 '$2'", "line 1: $1 has no value here"),
        ("srun -l env A=1 B='x' torchrun t.py", "line 1: env A=1 B='x': export the variables"),
        ("srun python t.py --rank \\$SLURM_PROCID", "line 1: passes the text $RANK"),
    ],
)
def test_scripts_that_need_a_decision(script: str, words: str) -> None:
    migrated = migrate_script(script, "job.sbatch")
    assert not migrated.documents
    assert words in str(migrated.failed)


GIVES_X = (
    "",
    "X=x.py",
    "X='x.py --a 1'",
    "X=(x.py --a)",
    "declare -a X=(x.py)\nX+=(1)",
    "X+=y",
    "X=$(find)",
    'export X="torchrun $(a) x.py"',
    'X="python -u"',
    "if a; then\n  X=1\nfi",
    "X=1\nfor i in 1; do\n  X=$(b)\ndone",
)
USES_X = (
    "torchrun $X t.py",
    "torchrun --tee 3 $X",
    'torchrun t.py "${X[@]}"',
    "srun $X t.py",
    "srun python -u $X",
    "srun python -m $X",
    'srun bash -c "$X t.py"',
    "srun bash -c 'date; exec $X'",
    "python t.py ${X[0]} ${#X[@]} ${X[@]:1}",
)


@pytest.mark.parametrize("image", ["/a/b.sqsh", "b.sqsh", "$(pwd)/b", "./b", "${B}/c"])
def test_an_image_that_is_a_file_is_named(image: str) -> None:
    found = migrate_script(f"srun --container-image={image} torchrun t.py", "x")
    assert found.documents[0]["spec"]["template"]["spec"]["containers"][0]["image"].startswith(
        "fill-in.invalid/"
    )
    assert f"the registry's image that {image} was made of" in "".join(map(str, found.remarks))


def test_nothing_that_is_started_is_a_variable_without_a_value() -> None:
    found = {
        (gives, uses): migrate_script(f"{gives}\n{uses}\n", "x")
        for gives in GIVES_X
        for uses in USES_X
    }
    assert any(migrated.documents for migrated in found.values())
    assert_none(
        f"{place}: {migrated.documents}"
        for place, migrated in found.items()
        if re.search(r"\$\{?[#!]?X", str(migrated.documents))
        or bool(migrated.failed) is bool(migrated.documents)
    )


@pytest.mark.parametrize(
    ("file", "name"),
    [("a/B_1.sbatch", "b-1"), ("2-x.sh", "x"), ("1", "training"), ("a" * 50, "a" * 45)],
)
def test_a_job_without_a_name_has_the_files(file: str, name: str) -> None:
    [job] = migrate_script("srun torchrun a.py", file).documents
    assert job["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("variable", "has_value"),
    [("LOCAL_WORLD_SIZE", True), ("GROUP_RANK", True), ("NODE_RANK", False), ("TAG", False)],
)
def test_variables_that_a_process_has_are_not_asked_for(variable: str, has_value: bool) -> None:
    text = f"#!/bin/bash\nsrun bash -c 'python train.py --x ${variable}'\n"
    remarks = " ".join(map(str, migrate_script(text, "x.sbatch").remarks))
    assert (f"{variable}: set in the container's env" not in remarks) is has_value


@pytest.mark.parametrize(
    ("nnodes", "sizes"),
    [
        ("", {"replicas": 4, "minReplicas": 2, "maxReplicas": 4}),
        ("--nnodes=4", {"replicas": 4, "minReplicas": 2, "maxReplicas": 4}),
        ("--nnodes=2", {"replicas": 2}),
        ("--nnodes=1:3", {"replicas": 3, "minReplicas": 1, "maxReplicas": 3}),
    ],
)
def test_bounds_of_nodes_hold_unless_torchrun_waits_for_others(
    nnodes: str, sizes: dict[str, int]
) -> None:
    found = migrate_script(f"#SBATCH -N 2-4\nsrun torchrun {nnodes} t.py", "x")
    spec = found.documents[0]["spec"]
    assert {name: spec[name] for name in spec if "eplicas" in name} == sizes
    said = "".join(map(str, found.remarks))
    assert (f"replicas is {sizes['replicas']}" in said) is (sizes["replicas"] != 4)


def test_exec_before_srun_changes_nothing() -> None:
    text = "#SBATCH -N 2\n{}srun torchrun t.py"
    plain, replaced = (migrate_script(text.format(start), "x") for start in ("", "exec "))
    assert replaced == plain


def test_a_number_beyond_all_bounds_fails_the_script_alone() -> None:
    found = migrate_script(f"#SBATCH -N {'9' * 5000}\nsrun torchrun t.py", "x")
    assert "the script: does not have the form of a batch script" in str(found.failed)
