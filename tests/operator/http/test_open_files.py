import resource
from collections.abc import Iterator

import pytest
from elastic_pytorch_operator.http.server import OWN_FILES, most_connections, raise_limit


@pytest.fixture
def most_files() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_process_takes_all_files_that_it_may_and_leaves_some_to_itself(most_files: int) -> None:
    assert most_connections() == 1024 - OWN_FILES
    raise_limit()
    assert most_connections() == most_files - OWN_FILES
