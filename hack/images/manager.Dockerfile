# Kueue's manager, which hack/kueue.sh has built: one static program.
FROM scratch
COPY manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
