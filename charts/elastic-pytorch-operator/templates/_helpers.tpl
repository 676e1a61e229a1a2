{{/* The label app.kubernetes.io/name. */}}
{{- define "operator.name" -}}
{{ .Values.nameOverride | default "elastic-pytorch-operator" }}
{{- end }}

{{/*
What everything is called. Not after the release: most clusters have one operator, and a second installation without a name of its
own is refused because the names of its cluster roles are taken.
*/}}
{{- define "operator.fullname" -}}
{{ .Values.fullnameOverride | default (include "operator.name" .) }}
{{- end }}

{{- define "operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "operator.fullname" .) }}
{{- else -}}
{{ required "serviceAccount.create is false: say in serviceAccount.name which ServiceAccount to use" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The reference of an image. Its arguments: the root, the name of the image's values, the tag if they have none. */}}
{{- define "operator.reference" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values (index . 1) -}}
{{- $registry := $root.Values.global.imageRegistry | default $image.registry -}}
{{- $named := regexMatch "^([^/]*[.:][^/]*|localhost)/" $image.repository -}}
{{- if and $registry $named -}}
{{- fail (printf "%s.repository is %s, which names a registry, but %s is set as well: leave the registry out of %s.repository" (index . 1) $image.repository $registry (index . 1)) -}}
{{- end -}}
{{- /* `helm lint` has no values of an installation. */ -}}
{{- if not (or $registry $named (not (or $root.Release.IsInstall $root.Release.IsUpgrade))) -}}
{{- fail (printf "%s.registry is not set, and no image is published: build and push both images (docs/operate/install.md), then set global.imageRegistry to their registry" (index . 1)) -}}
{{- end -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 2) }}{{ end -}}
{{- end }}

{{- define "operator.image" -}}
{{ include "operator.reference" (list . "image" .Chart.AppVersion) }}
{{- end }}

{{/* Of the same version as the operator. */}}
{{- define "operator.agentImage" -}}
{{ include "operator.reference" (list . "agentImage" (.Values.image.tag | default .Chart.AppVersion)) }}
{{- end }}

{{- define "operator.imagePullSecrets" -}}
{{- with concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Of the pod of `helm test`: none of the labels by which the Service finds the operator. */}}
{{- define "operator.testLabels" -}}
app.kubernetes.io/name: {{ include "operator.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The name in the operator's certificate. */}}
{{- define "operator.host" -}}
{{ include "operator.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The Secret with its certificate, and with the authorities that clients trust, in ca.crt. */}}
{{- define "operator.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "operator.fullname" .)) }}
{{- end }}

{{/* Where agents find the operator. */}}
{{- define "operator.url" -}}
https://{{ include "operator.host" . }}:8443
{{- end }}

{{/* The port of the probes. Without metrics.secure it is that of the metrics as well. */}}
{{- define "operator.probePort" -}}
{{ ternary "probes" "metrics" .Values.metrics.secure }}
{{- end }}
