{{/* Everything of the pod that the Pod Security Standards ask for at "restricted". */}}
{{- define "hunyuan-ocr.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* (dict "readOnly" true) */}}
{{- define "hunyuan-ocr.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: {{ .readOnly }}
{{- end }}

{{/* Where pods may run; the Job that fills the claim goes where the server can follow it. */}}
{{- define "hunyuan-ocr.scheduling" -}}
{{- $cuda := eq (include "hunyuan-ocr.device" .) "cuda" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy .Values.affinity }}
{{- if and $cuda .Values.gpu.requireLabels }}
{{- $affinity = set $affinity "nodeAffinity" (include "hunyuan-ocr.gpuNodeAffinity" . | fromYaml) }}
{{- end }}
{{- with $affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := .Values.tolerations }}
{{- if $cuda }}
{{- $tolerations = prepend $tolerations (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") }}
{{- end }}
{{- with $tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Gt and Lt compare integers and exclude their bound. */}}
{{- define "hunyuan-ocr.gpuNodeAffinity" -}}
{{- $gpu := (include "hunyuan-ocr.profile" . | fromYaml).gpu -}}
requiredDuringSchedulingIgnoredDuringExecution:
  nodeSelectorTerms:
    - matchExpressions:
        - key: nvidia.com/gpu.product
          operator: In
          values: {{- include "hunyuan-ocr.gpuProducts" . | fromYamlArray | toYaml | nindent 12 }}
        - {key: nvidia.com/gpu.memory, operator: Gt, values: [{{ sub (int64 $gpu.memoryMiB.min) 1 | toString | quote }}]}
        - {key: nvidia.com/gpu.memory, operator: Lt, values: [{{ add (int64 $gpu.memoryMiB.max) 1 | toString | quote }}]}
{{- end }}

{{- define "hunyuan-ocr.gpuProducts" -}}
{{- $suffix := ternary "-SHARED" "" (gt (int .Values.gpu.sharing.replicas) 1) -}}
{{- range (include "hunyuan-ocr.profile" . | fromYaml).gpu.products }}
- {{ . }}{{ $suffix }}
{{- end }}
{{- end }}

{{/* Seconds that a pod may need to end: callers stop sending, the longest request, vLLM. */}}
{{- define "hunyuan-ocr.drainPropagation" -}}
{{ .Values.sidecar.settings.DRAIN_PROPAGATION_S | default 10 }}
{{- end }}

{{- define "hunyuan-ocr.longestRequest" -}}
{{ .Values.sidecar.settings.BATCH_TIMEOUT_S | default 600 }}
{{- end }}

{{- define "hunyuan-ocr.graceNeeded" -}}
{{ addf (include "hunyuan-ocr.drainPropagation" . | float64) (include "hunyuan-ocr.longestRequest" . | float64) 15 | ceil | int }}
{{- end }}

{{- define "hunyuan-ocr.grace" -}}
{{ .Values.terminationGracePeriodSeconds | default (include "hunyuan-ocr.graceNeeded" .) | int }}
{{- end }}
