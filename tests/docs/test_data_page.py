"""docs/use/data.md: its code gives each sample once, as it stands on the page."""

import os
import random
import sqlite3
from collections import Counter
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.documentation import blocks
from tests.paths import ROOT

pytestmark = pytest.mark.torch

PAGE = ROOT / "docs" / "use" / "data.md"
ORDERS = "ByLength"  # tests/worker_image/training/test_sampler_orders.py runs the block with it
CODE = [
    block.text for block in blocks(PAGE) if block.language == "python" and ORDERS not in block.text
]
LENGTH = 1024  # of a window of tokens


def run(number: int, **given: Any) -> dict[str, Any]:
    """What a block of the page makes, with what the reader of the page has imported."""
    imported = {
        "DataLoader": DataLoader,
        "Dataset": Dataset,
        "cached_property": cached_property,
        "elastic": elastic,
    }
    names: dict[str, Any] = {**imported, **given}
    exec(compile(CODE[number], "data.md", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_code_is_run() -> None:
    assert len(CODE) == 3


def test_windows_of_tokens() -> None:
    tokens = np.arange(7 * LENGTH + 1, dtype=np.uint16)
    tokens.tofile("tokens.bin")
    inputs, targets = (
        torch.cat(each) for each in zip(*run(0, np=np, os=os, torch=torch)["loader"], strict=True)
    )
    assert Counter(inputs.flatten().tolist()) == Counter(tokens[:-1].tolist())
    assert torch.equal(targets, inputs + 1)


def test_rows_of_a_table() -> None:
    texts = {key: f"text {key}" for key in range(0, 25_000, 50)}
    with closing(sqlite3.connect("samples.db")) as database, database:
        database.execute("CREATE TABLE samples (key INTEGER PRIMARY KEY, text TEXT)")
        database.executemany("INSERT INTO samples VALUES (?, ?)", texts.items())
    made = run(1, sqlite3=sqlite3, closing=closing, last_key=25_000)
    assert Counter(text for batch in made["loader"] for text in batch) == Counter(texts.values())
    assert list(made["read"]((10_000, 20_000), start=150)) == [
        texts[key] for key in range(17_500, 20_000, 50)
    ]


def test_samples_of_a_generator() -> None:
    made = run(2, random=random, make_sample=random.Random.random)
    assert list(made["read"](7)) == list(made["read"](7)) != list(made["read"](8))
    assert len(next(iter(made["loader"]))) == 256
