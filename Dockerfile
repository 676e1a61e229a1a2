# The operator. BASE is any Debian 12 with apt.
#
# Three stages count: `base` is large and rarely changes, `code` is what is ours, and the last lays one on the other.
# hack/images/load_image.py relies on that: after a change of code it sends the nodes only the code.
ARG BASE=debian:bookworm-slim

FROM $BASE AS dependencies
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/ldconfig/aux-cache /var/log/*
RUN python3 -m venv /opt/venv
# Wheels in .cluster/wheels that fit this platform are used first. With PIP_OPTIONS=--no-index nothing else is: a build then needs no
# package index. The lock file's hashes hold either way.
ARG PIP_OPTIONS=""
COPY requirements.lock .cluster/wheel[s] /wheels/
RUN /opt/venv/bin/pip install --no-cache-dir --no-compile --disable-pip-version-check --require-hashes --only-binary :all: $PIP_OPTIONS \
        --find-links /wheels --requirement /wheels/requirements.lock \
    && /opt/venv/bin/pip uninstall --yes setuptools pip \
    && /opt/venv/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/venv

FROM $BASE AS base
# Logs and caches would make each build another image.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/ldconfig/aux-cache /var/log/*
COPY --from=dependencies /opt/venv /opt/venv

FROM base AS assembly
COPY LICENSE /out/
COPY operator/elastic_pytorch_operator /out/opt/venv/lib/python3.11/site-packages/elastic_pytorch_operator
# The root file system may be read-only at run time, so bytecode is compiled here, once.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash -s /out /out/opt/venv

FROM scratch AS code
COPY --from=assembly /out /

FROM base
COPY --from=code / /
ARG VERSION=unknown
LABEL org.opencontainers.image.version=$VERSION org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["python3", "-m", "elastic_pytorch_operator"]
CMD ["run"]
