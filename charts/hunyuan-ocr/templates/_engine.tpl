{{- define "hunyuan-ocr.profile" -}}
{{ get .Values.profiles .Values.gpu.profile | toYaml }}
{{- end }}

{{- define "hunyuan-ocr.device" -}}
{{- if eq .Values.engine.kind "vllm" -}}
{{ (include "hunyuan-ocr.profile" . | fromYaml).device }}
{{- end -}}
{{- end }}

{{/* Arguments of `vllm serve`, as a YAML list. Those of scripts/engine/serve.py are the same. */}}
{{- define "hunyuan-ocr.engineArgs" -}}
{{- $p := include "hunyuan-ocr.profile" . | fromYaml -}}
- vllm
- serve
- {{ include "hunyuan-ocr.modelPath" . }}
- --served-model-name
- tencent/HunyuanOCR
- hunyuan-ocr
- --host
- 127.0.0.1
- --port
- "8000"
- --max-num-seqs
- {{ int $p.maxNumSeqs | quote }}
- --max-num-batched-tokens
- {{ int $p.maxNumBatchedTokens | quote }}
- --max-model-len
- {{ int $p.maxModelLen | quote }}
- --renderer-num-workers
- {{ int $p.rendererNumWorkers | quote }}
- --limit-mm-per-prompt
- '{"image":1}'
- --no-enable-prefix-caching
- --mm-processor-cache-gb
- "0"
- --allowed-media-domains
- images.invalid
- --scheduling-policy
- priority
- --enable-request-id-headers
- --shutdown-timeout
- "30"
{{- if eq $p.device "cuda" }}
- --gpu-memory-utilization
- {{ include "hunyuan-ocr.gpuMemoryUtilization" . | quote }}
- --tensor-parallel-size
- {{ int .Values.gpu.count | quote }}
{{- end }}
{{- with .Values.engine.quantization }}
- --quantization
- {{ . }}
{{- end }}
{{- /* vLLM's own queue limit exists from 0.30 on, and there the Transformers backend serves this
       model, whose rotary embedding cannot be captured in CUDA graphs. */}}
{{- if semverCompare ">=0.30.0" .Values.engine.version }}
- --max-num-queued-reqs
- "256"
{{- if eq $p.device "cuda" }}
- -cc.cudagraph_mode=NONE
{{- end }}
{{- end }}
{{- with include "hunyuan-ocr.engineTraces" . }}
- --otlp-traces-endpoint
- {{ . | quote }}
{{- end }}
{{- range concat ($p.extraArgs | default list) .Values.engine.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Where vLLM's spans go: to the sidecar's collector, below the sidecar's spans. Empty: nowhere. */}}
{{- define "hunyuan-ocr.engineTraces" -}}
{{- with .Values.sidecar.settings.OTLP_ENDPOINT -}}
{{- if $.Values.engine.traces }}{{ trimSuffix "/" . }}/v1/traces{{ end -}}
{{- end -}}
{{- end }}

{{/* Two pods at 0.9 on one card would die at start: the share is divided, rounded down. */}}
{{- define "hunyuan-ocr.gpuMemoryUtilization" -}}
{{- $p := include "hunyuan-ocr.profile" . | fromYaml -}}
{{ divf (floor (divf (mulf $p.gpuMemoryUtilization 1000) .Values.gpu.sharing.replicas)) 1000 }}
{{- end }}

{{/* Environment of vLLM. Everything it or its libraries write lies on the cache volume. */}}
{{- define "hunyuan-ocr.engineEnv" -}}
{{- range $name, $value := dict
  "HOME" "/cache/home"
  "USER" "hunyuan-ocr"
  "XDG_CACHE_HOME" "/cache/xdg"
  "XDG_CONFIG_HOME" "/cache/config"
  "VLLM_CACHE_ROOT" "/cache/vllm"
  "VLLM_CONFIG_ROOT" "/cache/config/vllm"
  "HF_HOME" "/cache/huggingface"
  "TORCH_HOME" "/cache/torch"
  "TORCHINDUCTOR_CACHE_DIR" "/cache/torchinductor"
  "TORCH_EXTENSIONS_DIR" "/cache/torch-extensions"
  "TRITON_HOME" "/cache/triton-home"
  "TRITON_CACHE_DIR" "/cache/triton"
  "FLASHINFER_WORKSPACE_BASE" "/cache/flashinfer"
  "CUDA_CACHE_PATH" "/cache/cuda"
  "NUMBA_CACHE_DIR" "/cache/numba"
  "OUTLINES_CACHE_DIR" "/cache/outlines"
  "MPLCONFIGDIR" "/cache/matplotlib"
  "HF_HUB_OFFLINE" "1"
  "VLLM_NO_USAGE_STATS" "1"
  "DO_NOT_TRACK" "1"
  "VLLM_MEDIA_URL_ALLOW_REDIRECTS" "0"
  "VLLM_MAX_IMAGE_PIXELS" "50000000"
  "VLLM_ENGINE_READY_TIMEOUT_S" "300"
  "TOKENIZERS_PARALLELISM" "false"
  "PYTHONUNBUFFERED" "1"
}}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- /* The second model runner cannot run the native model, which ends with 0.28. */}}
{{- if semverCompare "<0.29.0" .Values.engine.version }}
- {name: VLLM_USE_V2_MODEL_RUNNER, value: "0"}
{{- end }}
{{- if include "hunyuan-ocr.engineTraces" . }}
- {name: OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, value: http/protobuf}
- {name: OTEL_SERVICE_NAME, value: vllm}
{{- end }}
{{- if ne (include "hunyuan-ocr.device" .) "cuda" }}
- {name: HYOCR_GPU_PROBE, value: none}
{{- end }}
{{- with .Values.engine.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.engineContainer" -}}
{{- $p := include "hunyuan-ocr.profile" . | fromYaml -}}
name: vllm
image: {{ include "hunyuan-ocr.engineImage" . }}
imagePullPolicy: {{ .Values.engine.image.pullPolicy }}
command: [python3, /code/launcher.py, serve, --]
args: {{- include "hunyuan-ocr.engineArgs" . | nindent 2 }}
env: {{- include "hunyuan-ocr.engineEnv" . | nindent 2 }}
{{- /* vLLM listens on the pod's loopback, where kubelet cannot reach it: the sidecar answers. */}}
startupProbe:
  httpGet: {port: 9180, path: /engine/startz}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: {{ div (int .Values.engine.startTimeoutSeconds) 5 }}
  terminationGracePeriodSeconds: 10
livenessProbe:
  exec: {command: [python3, /code/launcher.py, livez]}
  periodSeconds: 5
  timeoutSeconds: 10
  failureThreshold: 2
  terminationGracePeriodSeconds: 10
lifecycle:
  preStop:
    exec: {command: [python3, /code/launcher.py, hold]}
resources: {{- include "hunyuan-ocr.engineResources" . | nindent 2 }}
securityContext: {{- include "hunyuan-ocr.containerSecurityContext" (dict "readOnly" .Values.engine.readOnlyRootFilesystem) | nindent 2 }}
volumeMounts:
  - {name: code, mountPath: /code, readOnly: true}
  - {name: telemetry, mountPath: /telemetry}
  - {name: markers, mountPath: /markers, readOnly: true}
  - {name: cache, mountPath: /cache}
  - {name: shm, mountPath: /dev/shm}
  - {name: tmp-vllm, mountPath: /tmp}
  {{- if include "hunyuan-ocr.modelMounted" . }}
  - {name: model, mountPath: /models-cache, readOnly: true}
  {{- end }}
{{- end }}

{{- define "hunyuan-ocr.engineResources" -}}
{{- $p := include "hunyuan-ocr.profile" . | fromYaml -}}
{{- $resources := $p.resources | default dict -}}
{{- if eq $p.device "cuda" -}}
{{- $limits := set (deepCopy ($resources.limits | default dict)) .Values.gpu.resourceName (toString (int .Values.gpu.count)) -}}
{{- $resources = set $resources "limits" $limits -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}
