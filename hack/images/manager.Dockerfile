# The programs of another project's controller, which hack/images/manager.sh has built: each is static.
FROM scratch
COPY programs /
USER 65532:65532
ENTRYPOINT ["/manager"]
