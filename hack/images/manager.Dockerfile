# The manager of another project's controller, which hack/images/manager.sh has built: one static program.
FROM scratch
COPY manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
