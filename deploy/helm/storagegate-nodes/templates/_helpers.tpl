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

{{- define "storagegate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "storagegate.container" -}}
{{- $secret := required "root is needed: existingSecret, or accessKey and secretKey" (include "storagegate.rootSecret" .) -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: STORAGEGATE_CONFIG
    value: /etc/storagegate/storagegate.toml
  # The image sets the listeners by variables, which override the file.
  {{- range list "DATA" "S3" "ADMIN" "HTTP" "GRPC" "TCP" "UDP" }}
  - name: STORAGEGATE_{{ . }}
    value: ""
  {{- end }}
  - name: STORAGEGATE_ACCESS_KEY
    valueFrom:
      secretKeyRef:
        name: {{ $secret }}
        key: accessKey
  - name: STORAGEGATE_SECRET_KEY
    valueFrom:
      secretKeyRef:
        name: {{ $secret }}
        key: secretKey
{{- with .Values.blobsSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
volumeMounts:
  - name: data
    mountPath: /data
  - name: configuration
    mountPath: /etc/storagegate
    readOnly: true
  - name: tmp
    mountPath: /tmp
{{- end -}}

{{- define "storagegate.volumes" -}}
- name: data
  emptyDir: {}
- name: tmp
  emptyDir: {}
- name: configuration
  secret:
    secretName: {{ include "storagegate.name" . }}-configuration
{{- end -}}
