# shellcheck shell=bash
# Has the API server log the operator's requests. Sourced.
# A new cluster does so by kind.yaml, and an existing one gets another policy without being made again.

AUDIT_POLICY=$ROOT/hack/kind/audit-policy.yaml
API_SERVER_MANIFEST=/etc/kubernetes/manifests/kube-apiserver.yaml
AUDIT_SECONDS=150

# The path names the policy's content, so that another policy changes the command, and the kubelet restarts the API server.
audit_policy_on_node() {
    echo "/etc/kubernetes/pki/audit-policy-$(fingerprint "$AUDIT_POLICY").yaml"
}

ensure_audit() {
    local file
    file=$(audit_policy_on_node)
    docker exec "$CONTROL_PLANE" grep -q "audit-policy-file=$file$" "$API_SERVER_MANIFEST" 2>/dev/null && return
    step audit "Have the API server log what the operator asks for" enable_audit "$file"
}

enable_audit() {
    local file=$1
    docker exec -i "$CONTROL_PLANE" sh -c "cat >$file" <"$AUDIT_POLICY"
    # In one move, as the kubelet must never read half a manifest.
    docker exec "$CONTROL_PLANE" sh -c "sed -e '/- --audit-/d' \
        -e 's|^\( *\)- kube-apiserver\$|&\n\1- --audit-log-path=-\n\1- --audit-policy-file=$file|' \
        $API_SERVER_MANIFEST >/etc/kubernetes/kube-apiserver.new && mv /etc/kubernetes/kube-apiserver.new $API_SERVER_MANIFEST"
    retry "$AUDIT_SECONDS" api_server_logs_by "$file"
}

# It asks the process, not the pod's object, which changes before the old API server has ended.
api_server_logs_by() {
    docker exec "$CONTROL_PLANE" sh -c "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'" | grep -q "^--audit-policy-file=$1$" &&
        kubectl get --raw /readyz --request-timeout=5s >/dev/null 2>&1
}
