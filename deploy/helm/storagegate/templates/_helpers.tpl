{{- define "storagegate.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "storagegate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "storagegate.labels" -}}
{{ include "storagegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "storagegate.rootSecret" -}}
{{- if .Values.root.existingSecret -}}
{{ .Values.root.existingSecret }}
{{- else if .Values.root.accessKey -}}
{{ include "storagegate.name" . }}
{{- end -}}
{{- end -}}
