# The agent alone, for worker pods whose own image has only torch: an init container copies it to the folder that is its argument.
# Build it from the repository's root: docker build -f worker_image/agent.Dockerfile .
#
# Three stages count, as in the other images: the last lays `code`, which is ours, on `base` (hack/images/load_image.py).
ARG BASE=debian:trixie-slim

FROM $BASE AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends busybox-static python3-pip python3-setuptools \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt
RUN mkdir -p /base/bin && cp /bin/busybox /base/bin/
COPY worker_image/pyproject.toml worker_image/__main__.py /src/
COPY worker_image/elastic_pytorch /src/elastic_pytorch
# The package's metadata are part of it: torchrun finds the rendezvous handler there.
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
LABEL org.opencontainers.image.version="0.3.0-dev" org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-only"
USER 65532:65532
ENTRYPOINT ["/bin/busybox", "cp", "-R", "/opt/elastic-pytorch/."]
