{{/*
What everything is called. Not after the release: one operator serves the whole cluster, and a second installation is
refused because the names of its cluster roles are taken.
*/}}
{{- define "operator.name" -}}
elastic-pytorch-operator
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
{{- end }}

{{- define "operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "operator.name" .) }}
{{- else -}}
{{ required "serviceAccount.create is false: say in serviceAccount.name which ServiceAccount to use" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "operator.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}{{ hasPrefix "sha256:" $tag | ternary "@" ":" }}{{ $tag }}
{{- end }}

{{/* Of the pod of `helm test`: none of the labels by which the Service finds the operator. */}}
{{- define "operator.testLabels" -}}
app.kubernetes.io/name: {{ include "operator.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Where agents find the operator. */}}
{{- define "operator.url" -}}
https://{{ include "operator.name" . }}.{{ .Release.Namespace }}.svc:8443
{{- end }}
