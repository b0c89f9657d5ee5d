{{/* "true" where a revision is to be downloaded. */}}
{{- define "hunyuan-ocr.modelFetched" -}}
{{- if and (eq .Values.engine.kind "vllm") (not .Values.model.path) }}true{{ end -}}
{{- end }}

{{/* "true" where a volume holds the model. */}}
{{- define "hunyuan-ocr.modelMounted" -}}
{{- if eq .Values.engine.kind "vllm" -}}
{{- if or (not .Values.model.path) (eq .Values.model.cache "existingClaim") }}true{{ end -}}
{{- end -}}
{{- end }}

{{/* "true" where a Job downloads into a claim. */}}
{{- define "hunyuan-ocr.modelJob" -}}
{{- if and (include "hunyuan-ocr.modelFetched" .) (ne .Values.model.cache "ephemeral") }}true{{ end -}}
{{- end }}

{{- define "hunyuan-ocr.modelPath" -}}
{{ .Values.model.path | default (printf "/models-cache/%s/%s" .Values.model.repository .Values.model.revision) }}
{{- end }}

{{- define "hunyuan-ocr.modelClaimName" -}}
{{- if eq .Values.model.cache "existingClaim" -}}
{{ .Values.model.existingClaim }}
{{- else -}}
{{ include "hunyuan-ocr.fullname" . }}-model
{{- end -}}
{{- end }}

{{- define "hunyuan-ocr.modelVolume" -}}
name: model
{{- if eq .Values.model.cache "ephemeral" }}
emptyDir: {sizeLimit: {{ .Values.model.ephemeralSizeLimit }}}
{{- else }}
persistentVolumeClaim: {claimName: {{ include "hunyuan-ocr.modelClaimName" . }}}
{{- end }}
{{- end }}

{{/* The container that fetches the model or waits for it: (dict "root" $ "mode" "fetch") */}}
{{- define "hunyuan-ocr.modelContainer" -}}
{{- $root := .root -}}
{{- $fetch := eq .mode "fetch" -}}
{{- with $root.Values.model -}}
name: model
image: {{ include "hunyuan-ocr.engineImage" $root }}
imagePullPolicy: {{ $root.Values.engine.image.pullPolicy }}
command: [python3, -c]
args:
  - |
{{ $root.Files.Get "files/model.py" | trim | indent 4 }}
  - {{ $.mode }}
  - /models-cache
  - {{ .repository }}
  - {{ .revision | quote }}
  - {{ .download.source }}
  {{- if $fetch }}
  {{- range .download.ignore }}
  - {{ . | quote }}
  {{- end }}
  {{- end }}
env:
  - {name: HOME, value: /tmp}
  {{- if $fetch }}
  - {name: HF_HOME, value: /tmp/huggingface}
  - {name: HF_HUB_OFFLINE, value: "0"}
  - {name: HF_HUB_DISABLE_XET, value: "1"}
  - {name: HF_HUB_DISABLE_TELEMETRY, value: "1"}
  - {name: HF_HUB_DISABLE_PROGRESS_BARS, value: "1"}
  - {name: MODELSCOPE_CACHE, value: /tmp/modelscope}
  {{- $modelscope := eq .download.source "modelscope" }}
  {{- with .download.endpoint }}
  - {name: {{ ternary "MODELSCOPE_DOMAIN" "HF_ENDPOINT" $modelscope }}, value: {{ ternary (regexReplaceAll "^https?://" . "") . $modelscope | quote }}}
  {{- end }}
  {{- with .download.tokenSecret }}
  {{- if .name }}
  - name: {{ ternary "MODELSCOPE_API_TOKEN" "HF_TOKEN" $modelscope }}
    valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
  {{- end }}
  {{- end }}
  {{- with .download.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
resources:
  requests: {cpu: 100m, memory: 256Mi}
  limits: {memory: 2Gi}
securityContext: {{- include "hunyuan-ocr.containerSecurityContext" (dict "readOnly" true) | nindent 2 }}
volumeMounts:
  - {name: model, mountPath: /models-cache{{ if not $fetch }}, readOnly: true{{ end }}}
  - {name: tmp-model, mountPath: /tmp}
{{- end -}}
{{- end }}
