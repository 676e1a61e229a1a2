# The workers' image with what object storage needs, and with the server that stands for it in the tests. For hack/images/object-storage.sh.
ARG BASE=elastic-pytorch-worker:dev
FROM $BASE
COPY .cluster/wheels-object-storage /wheels/
USER 0
RUN python3 -m pip install --no-index --no-deps --ignore-installed --no-cache-dir --break-system-packages --root-user-action ignore /wheels/*.whl \
    && rm -r /wheels
USER 1000:1000
