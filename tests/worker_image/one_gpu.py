"""How several ranks of NCCL share one GPU."""


def one_gpu(host: str) -> dict[str, str]:
    """Variables with which a process is on a host of its own as far as NCCL knows.

    NCCL refuses two ranks of the same host on one GPU ("Duplicate GPU detected"), and has ranks of
    different hosts talk over the network: here sockets of the loopback interface. Tried with NCCL
    2.28.9. NVLink, shared memory and RDMA are not used so.

    Args:
        host: a name that no other rank's host has.
    """
    return {
        "NCCL_HOSTID": host,
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
