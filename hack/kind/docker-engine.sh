# shellcheck shell=bash
# A Docker Engine that answers, started or even installed if necessary. Sourced.

docker_answers() {
    timeout 10 docker version >/dev/null 2>&1
}

ensure_docker() {
    docker_answers && return
    [[ $(id -u) == 0 ]] || fail "Docker does not answer. Start it, or run this as root so that it can be started for you."
    if [[ -d /run/systemd/system ]] && systemctl cat docker.service >/dev/null 2>&1; then
        step docker "Start Docker by systemd" start_docker_by_systemd
        return
    fi
    if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then
        command -v apt-get >/dev/null || fail "There is no Docker here and no apt-get to install it with. Install Docker."
        step docker-packages "Install Docker (Debian's docker.io)" \
            install_packages docker.io containerd runc iptables
    fi
    step docker "Start dockerd" start_dockerd
}

install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y --no-install-recommends "$@"
}

start_docker_by_systemd() {
    systemctl start docker
    await_docker
}

# A dockerd of our own outlives this shell, until `make clean`.
start_dockerd() {
    local options=(--pidfile "$DOCKERD_PID")
    remove_stale_pid_files
    if lacks_capabilities; then
        install_runc_bounded
        options+=(--add-runtime "bounded=$CACHE/bin/runc-bounded" --default-runtime bounded)
    fi
    echo "dockerd ${options[*]}"
    setsid nohup dockerd "${options[@]}" >"$STATE/logs/dockerd.log" 2>&1 </dev/null 9>&- &
    await_docker || {
        tail -n 20 "$STATE/logs/dockerd.log"
        return 1
    }
}

# A killed dockerd leaves these files, and a new one does not start if the number is in use again.
remove_stale_pid_files() {
    local file pid
    for file in "$DOCKERD_PID" /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
        [[ -f $file ]] || continue
        pid=$(<"$file")
        case $(cat "/proc/$pid/comm" 2>/dev/null) in
        dockerd | containerd) ;;
        *) rm -f "$file" ;;
        esac
    done
}

# A copy outside of all checkouts. It names its interpreter, as runc is called for each container and `docker exec`, and a
# python3 on PATH may be a slow wrapper.
install_runc_bounded() {
    {
        python3 -c 'import sys; print(f"#!{sys.executable} -SE")'
        tail -n +2 "$ROOT/hack/kind/runc-bounded"
    } >"$CACHE/bin/runc-bounded"
    chmod 755 "$CACHE/bin/runc-bounded"
}

lacks_capabilities() {
    local held last
    held=$((16#$(awk '/^CapBnd:/ {print $2}' /proc/self/status)))
    last=$(</proc/sys/kernel/cap_last_cap)
    ((held != (1 << (last + 1)) - 1))
}

await_docker() {
    retry 60 docker_answers
}
