{{- define "pytube.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "pytube.selector" -}}
app.kubernetes.io/name: pytube
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pytube.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "pytube.container" -}}
image: {{ include "pytube.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "pytube.confined" . }}
{{- end }}

{{- define "pytube.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}
