# The agent alone, for pods whose image has only torch: an init container copies it to a folder, its
# argument. Build it in the root: docker build -f worker_image/agent.Dockerfile .
#
# As in the other images, the last stage lays `code`, which is ours, on `base`.
ARG BASE=debian:trixie-slim

FROM $BASE AS build
# ARCHITECTURE: Debian's name of another one than this stage's. Only busybox depends on it, and no
# step runs that: no emulator is needed.
ARG ARCHITECTURE=""
RUN if [ -n "$ARCHITECTURE" ]; then dpkg --add-architecture "$ARCHITECTURE"; fi \
    && apt-get update \
    && apt-get install -y --no-install-recommends python3-pip python3-setuptools \
    && cd /tmp && apt-get download "busybox-static${ARCHITECTURE:+:$ARCHITECTURE}" \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt
# Without dpkg, scanners read status.d. The licence requires the copyright file.
RUN dpkg -x /tmp/busybox-static_*.deb /busybox \
    && mkdir -p /base/bin /base/usr/share/doc/busybox-static /base/var/lib/dpkg/status.d \
    && cp /busybox/usr/bin/busybox /base/bin/ \
    && cp /busybox/usr/share/doc/busybox-static/copyright /base/usr/share/doc/busybox-static/ \
    && dpkg-deb --field /tmp/busybox-static_*.deb > /base/var/lib/dpkg/status.d/busybox-static
COPY worker_image/pyproject.toml worker_image/__main__.py /src/
COPY worker_image/elastic_pytorch /src/elastic_pytorch
# With the package's metadata, where torchrun finds the rendezvous handler.
RUN python3 -m pip install --no-index --no-deps --no-build-isolation --no-cache-dir --no-compile --root-user-action ignore \
        --target /code/opt/elastic-pytorch /src \
    && cp /src/__main__.py /code/opt/elastic-pytorch/ \
    && chmod -R u=rwX,go=rX /code
COPY LICENSE /code/

FROM scratch AS base
COPY --from=build /base /

FROM scratch AS code
COPY --from=build /code /

FROM base
COPY --from=code / /
ARG VERSION=unknown
LABEL org.opencontainers.image.version=$VERSION org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-only"
USER 65532:65532
ENTRYPOINT ["/bin/busybox", "cp", "-R", "/opt/elastic-pytorch/."]
