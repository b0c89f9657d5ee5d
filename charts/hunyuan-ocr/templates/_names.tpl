{{- define "hunyuan-ocr.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 47 | trimSuffix "-" }}
{{- end }}

{{- define "hunyuan-ocr.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 47 | trimSuffix "-" }}
{{- else if contains (include "hunyuan-ocr.name" .) .Release.Name -}}
{{ .Release.Name | trunc 47 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "hunyuan-ocr.name" .) | trunc 47 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* What a Deployment and a Service select by: never changes during the life of a release. */}}
{{- define "hunyuan-ocr.selectorLabels" -}}
app.kubernetes.io/name: {{ include "hunyuan-ocr.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: server
{{- end }}

{{/* (dict "root" $ "component" "model") */}}
{{- define "hunyuan-ocr.labels" -}}
app.kubernetes.io/name: {{ include "hunyuan-ocr.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: hunyuan-ocr
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "hunyuan-ocr.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "hunyuan-ocr.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- define "hunyuan-ocr.keysSecretName" -}}
{{- if .Values.keys.existingSecret -}}
{{ .Values.keys.existingSecret }}
{{- else if .Values.keys.entries -}}
{{ include "hunyuan-ocr.fullname" . }}-keys
{{- end -}}
{{- end }}

{{- define "hunyuan-ocr.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "hunyuan-ocr.engineImage" -}}
{{- with .Values.engine.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (printf "v%s" $.Values.engine.version) }}{{ end }}
{{- end -}}
{{- end }}
