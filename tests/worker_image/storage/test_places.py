import pytest
from elastic_pytorch.storage.places import is_of_container

TOKEN = "/var/run/secrets/elasticpytorch.dev"
POD = f"""\
688 641 0:241 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/l
690 688 0:245 / /proc rw,nosuid - proc proc rw
701 688 8:1 /pods/1/volumes/pvc /checkpoints rw,relatime - ext4 /dev/sda1 rw
702 688 0:52 / /data\\040sets rw,relatime - nfs4 10.0.0.1:/data rw
703 688 8:1 /pods/1/volumes/disk /scratch/cache rw,relatime - ext4 /dev/sda1 rw
704 688 0:60 / {TOKEN} ro,relatime - tmpfs tmpfs rw
"""
MACHINE = """\
22 1 0:30 / / rw,relatime - overlay overlay rw,lowerdir=/l
23 22 0:31 / /tmp rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "mounts", "expected"),
    [
        ("/tmp/run", POD, True),
        ("/checkpoints", POD, False),
        ("/checkpoints/a/b", POD, False),
        ("/checkpoints-of-mine", POD, True),
        ("/scratch", POD, True),
        ("/scratch/cache/run", POD, False),
        ("/data sets/run", POD, False),
        ("/", POD, True),
        ("/runs", MACHINE, False),  # no pod of the operator: its token is a plain file
        ("/runs", "", False),
    ],
)
def test_folder_of_a_pod_is_on_a_volume(folder: str, mounts: str, expected: bool) -> None:
    assert is_of_container(folder, token_folder=TOKEN, mounts=mounts) is expected
