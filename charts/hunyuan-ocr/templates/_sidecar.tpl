{{/* The service: a native sidecar beside vLLM, up before it and down after it; or, with the
     embedded engine, the pod's only container. */}}
{{- define "hunyuan-ocr.sidecarContainer" -}}
{{- $vllm := eq .Values.engine.kind "vllm" -}}
name: hunyuan-ocr
image: {{ include "hunyuan-ocr.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if $vllm }}
restartPolicy: Always
{{- end }}
args: [serve]
env: {{- include "hunyuan-ocr.sidecarEnv" . | nindent 2 }}
ports:
  - {name: http, containerPort: 7860}
  - {name: management, containerPort: 9180}
startupProbe:
  httpGet: {port: management, path: /livez}
  periodSeconds: 1
  timeoutSeconds: 3
  failureThreshold: 120
  terminationGracePeriodSeconds: 10
livenessProbe:
  httpGet: {port: management, path: /livez}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
  terminationGracePeriodSeconds: 10
readinessProbe:
  httpGet: {port: management, path: /readyz}
  periodSeconds: 3
  timeoutSeconds: 3
  failureThreshold: 2
lifecycle:
  preStop:
    exec: {command: [hunyuan-ocr, drain]}
resources: {{- toYaml .Values.sidecar.resources | nindent 2 }}
securityContext: {{- include "hunyuan-ocr.containerSecurityContext" (dict "readOnly" true) | nindent 2 }}
volumeMounts:
  - {name: control, mountPath: /run/hunyuan-ocr}
  - {name: tmp, mountPath: /tmp}
  {{- if $vllm }}
  - {name: telemetry, mountPath: /telemetry, readOnly: true}
  - {name: markers, mountPath: /markers}
  {{- end }}
  {{- if include "hunyuan-ocr.keysSecretName" . }}
  - {name: keys, mountPath: /etc/hunyuan-ocr/keys, readOnly: true}
  {{- end }}
  {{- if .Values.signals.enabled }}
  - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- end }}
{{- end }}

{{/* "true" where the service's own CPU engine reads, always or as a stand-in. */}}
{{- define "hunyuan-ocr.cpuEngine" -}}
{{- $settings := .Values.sidecar.settings | default dict -}}
{{- if or (eq .Values.engine.kind "embedded") (eq ($settings.BREAKER_POLICY | default "") "cpu") (eq ($settings.DEGRADE_TOP | default "") "cpu_engine") }}true{{ end -}}
{{- end }}

{{/* Settings that follow from other values, by name without HYOCR_; as a YAML map. */}}
{{- define "hunyuan-ocr.derivedSettings" -}}
HOST: 0.0.0.0
PORT: 7860
MANAGEMENT_HOST: 0.0.0.0
MANAGEMENT_PORT: 9180
CONTROL_SOCKET: /run/hunyuan-ocr/control.sock
DECODE_WORKERS: {{ int .Values.sidecar.decodeWorkers }}
ENGINE: {{ .Values.engine.kind }}
{{- if include "hunyuan-ocr.keysSecretName" . }}
API_KEYS_FILE: /etc/hunyuan-ocr/keys/keys
{{- end }}
{{- if .Values.signals.enabled }}
SIGNALS_DEPLOYMENT: {{ include "hunyuan-ocr.fullname" . }}
SIGNALS_MAX_UNREADY_PERCENT: {{ int .Values.signals.maxUnreadyPercent }}
{{- end }}
{{- if include "hunyuan-ocr.cpuEngine" . }}
EMBEDDED_WORKERS: {{ int .Values.sidecar.embeddedWorkers }}
{{- end }}
{{- if eq .Values.engine.kind "vllm" }}
{{- $p := include "hunyuan-ocr.profile" . | fromYaml }}
MARKERS_DIRECTORY: /markers
VLLM_URL: http://127.0.0.1:8000
VLLM_GENERATION: {{ .Values.model.generation | quote }}
VLLM_CONCURRENCY: {{ int $p.maxNumSeqs }}
VLLM_ENCODER_TOKENS: {{ int $p.maxNumBatchedTokens }}
VLLM_MAX_OUTPUT_TOKENS: {{ int $p.maxOutputTokens }}
VLLM_PAGE_PIXELS: {{ int $p.pagePixels }}
{{- if eq $p.device "cuda" }}
GPU_FILE: /telemetry/gpu.json
{{- with ($p.gpu | default dict).fullClockMegahertz }}
GPU_FULL_CLOCK_MEGAHERTZ: {{ int . }}
{{- end }}
{{- end }}
{{- with .Values.model.minPixels }}
VLLM_MIN_PIXELS: {{ int . }}
{{- end }}
{{- with .Values.model.maxPixels }}
VLLM_MAX_PIXELS: {{ int . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.sidecarEnv" -}}
- {name: HOME, value: /tmp}
{{- range $name, $value := merge (include "hunyuan-ocr.derivedSettings" . | fromYaml) .Values.sidecar.settings }}
- {name: HYOCR_{{ $name }}, value: {{ include "hunyuan-ocr.plainNumber" $value | quote }}}
{{- end }}
{{- if .Values.signals.enabled }}
- {name: HYOCR_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: HYOCR_POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: HYOCR_POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
{{- end }}
{{- with .Values.redis }}
{{- if .existingSecret }}
- name: HYOCR_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .key }}}}
{{- end }}
{{- end }}
{{- with .Values.sidecar.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Numbers of YAML and JSON are floats here; 1e+06 is not a setting. */}}
{{- define "hunyuan-ocr.plainNumber" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end }}
