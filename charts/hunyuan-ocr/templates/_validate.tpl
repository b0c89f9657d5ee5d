{{/* Combinations that cannot work fail here with what to do; types, ranges and unknown names fail in
     values.schema.json before. Every sentence is in tests/chart/test_refusals.py. */}}
{{- define "hunyuan-ocr.validate" -}}
{{- $problems := concat
  (include "hunyuan-ocr.validate.images" . | fromYamlArray)
  (include "hunyuan-ocr.validate.pod" . | fromYamlArray)
  (include "hunyuan-ocr.validate.sidecar" . | fromYamlArray)
  (include "hunyuan-ocr.validate.keys" . | fromYamlArray)
  (include "hunyuan-ocr.validate.signals" . | fromYamlArray)
  (include "hunyuan-ocr.validate.scaling" . | fromYamlArray)
  (include "hunyuan-ocr.validate.policy" . | fromYamlArray)
  (include "hunyuan-ocr.validate.redis" . | fromYamlArray)
-}}
{{- if eq .Values.engine.kind "vllm" -}}
{{- if hasKey .Values.profiles .Values.gpu.profile -}}
{{- $problems = concat $problems
  (include "hunyuan-ocr.validate.engine" . | fromYamlArray)
  (include "hunyuan-ocr.validate.gpu" . | fromYamlArray)
  (include "hunyuan-ocr.validate.model" . | fromYamlArray)
-}}
{{- else -}}
{{- $problems = append $problems (printf "gpu.profile %q is none of: %s; name one of them or add it under profiles" .Values.gpu.profile (keys .Values.profiles | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nThese values cannot work:\n- %s\n" (join "\n- " $problems)) -}}
{{- end -}}
{{- end }}

{{- define "hunyuan-ocr.validate.images" -}}
{{- if not .Values.image.repository }}
- "image.repository is not set: run `make images push REGISTRY=registry.example.com/ocr` and install with `--set image.repository=registry.example.com/ocr/hunyuan-ocr`"
{{- end }}
{{- if regexMatch "[:@][^/]*$" .Values.image.repository }}
- "image.repository holds a tag or digest: put it into image.tag or image.digest"
{{- end }}
{{- if regexMatch "[:@][^/]*$" .Values.engine.image.repository }}
- "engine.image.repository holds a tag or digest: put it into engine.image.tag or engine.image.digest"
{{- end }}
{{- if and (include "hunyuan-ocr.cpuEngine" .) (hasSuffix "-slim" .Values.image.tag) }}
- "image.tag ends in -slim, and slim images lack the embedded engine: take the tag without -slim"
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.pod" -}}
{{- $needed := include "hunyuan-ocr.graceNeeded" . | int }}
{{- with .Values.terminationGracePeriodSeconds }}
{{- if lt (int .) $needed }}
- "terminationGracePeriodSeconds {{ int . }} would cut off requests: it must be at least {{ $needed }}, which is sidecar.settings DRAIN_PROPAGATION_S + BATCH_TIMEOUT_S + 15; leave it null, or lower BATCH_TIMEOUT_S"
{{- end }}
{{- end }}
{{- range $name, $_ := .Values.podLabels }}
{{- if hasPrefix "app.kubernetes.io/" $name }}
- "podLabels may not set {{ $name }}: the chart selects its pods by such labels"
{{- end }}
{{- end }}
{{- if hasKey .Values.podAnnotations "kubectl.kubernetes.io/default-container" }}
- "podAnnotations may not set kubectl.kubernetes.io/default-container: the chart does"
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.sidecar" -}}
{{- $derived := keys (include "hunyuan-ocr.derivedSettings" . | fromYaml) -}}
{{- $known := .Files.Lines "files/settings.txt" -}}
{{- range $name, $_ := .Values.sidecar.settings }}
{{- if has $name $derived }}
- "sidecar.settings may not set {{ $name }}: the chart derives it from other values (engine, gpu, model, keys, sidecar.decodeWorkers)"
{{- else if not (has $name $known) }}
- "sidecar.settings {{ $name }} is no setting of the service: see docs/settings.md for the names, and write them without HYOCR_"
{{- end }}
{{- end }}
{{- range tuple "BATCH_TIMEOUT_S" "DRAIN_PROPAGATION_S" }}
{{- $value := get $.Values.sidecar.settings . | toString }}
{{- if and $value (not (regexMatch "^[0-9.e+]+$" $value)) }}
- "sidecar.settings {{ . }} must be a number of seconds, not {{ $value }}"
{{- end }}
{{- end }}
{{- range .Values.sidecar.extraEnv }}
{{- if hasPrefix "HYOCR_" (.name | default "") }}
- "sidecar.extraEnv may not set {{ .name }}: put it into sidecar.settings"
{{- end }}
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.keys" -}}
{{- if and .Values.keys.existingSecret .Values.keys.entries }}
- "keys.existingSecret and keys.entries are both set: keep one"
{{- end }}
{{- range .Values.keys.entries }}
{{- if not (regexMatch "^[^:.\\s][^:.]*:[0-9a-f]{32}:[0-9a-f]{64}$" .) }}
- "a line in keys.entries is not `<id>:<salt>:<hash>`: take the second line that `hunyuan-ocr new-key NAME` prints, never the key itself"
{{- end }}
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.scaling" -}}
{{- with .Values.autoscaling }}
{{- if ne .mode "none" }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
- "autoscaling.minReplicas {{ int .minReplicas }} is above maxReplicas {{ int .maxReplicas }}: lower the one or raise the other"
{{- end }}
{{- end }}
{{- if and (eq .mode "keda") (not .prometheus.address) }}
- "autoscaling.mode is keda and autoscaling.prometheus.address is not set: name the Prometheus that scrapes the pods, for example http://prometheus-operated.monitoring:9090"
{{- end }}
{{- if and (ne .mode "keda") (or .prometheus.address .prometheus.query) }}
- "autoscaling.prometheus is for KEDA and autoscaling.mode is {{ .mode }}: prometheus-adapter has address and query in its own configuration; leave both empty"
{{- end }}
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.policy" -}}
{{- with .Values.networkPolicy }}
{{- if .enabled }}
{{- if and $.Values.ingress.enabled (not .callers) }}
- "ingress.enabled and networkPolicy.callers is empty, so the controller cannot reach the pods: name its namespace, for example `[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]`"
{{- end }}
{{- if and (ne $.Values.service.type "ClusterIP") (not .callers) }}
- "service.type is {{ $.Values.service.type }} and networkPolicy.callers is empty, so nobody outside the namespace can reach the pods: name who may, for example `[{ipBlock: {cidr: 10.0.0.0/8}}]`"
{{- end }}
{{- if and (include "hunyuan-ocr.scraped" $) (not .monitoring) }}
- "Prometheus is to read port 9180 (podMonitor or autoscaling) and networkPolicy.monitoring is empty, so it cannot: name its pods, for example `[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]`"
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.monitoring.rules.enabled (not .Values.podMonitor.enabled) }}
- "monitoring.rules.enabled is true and podMonitor.enabled is false: the rules are about the series that the PodMonitor brings; set podMonitor.enabled=true, or load dashboards/rules.yaml into your Prometheus"
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}
- "ingress.enabled and ingress.host is not set: name the host under which callers reach the service"
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.redis" -}}
{{- with .Values.sidecar.settings }}
{{- if and $.Values.redis.existingSecret .REDIS_URL }}
- "redis.existingSecret and sidecar.settings REDIS_URL are both set: keep the Secret, since such a URL often holds a password"
{{- end }}
{{- end }}
{{- if and .Values.redis.existingSecret (not (include "hunyuan-ocr.quotas" .)) }}
- "redis.existingSecret is set and there is no quota to share: set QUOTA_REQUESTS_PER_S or QUOTA_COST_PER_S in sidecar.settings, or leave Redis out"
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.signals" -}}
{{- if .Values.signals.enabled }}
{{- if semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version }}
- "signals.enabled needs Kubernetes 1.30 and this is {{ .Capabilities.KubeVersion.Version }}: without ValidatingAdmissionPolicy every pod could write the status of all others; upgrade, or leave it false"
{{- end }}
{{- if eq (include "hunyuan-ocr.serviceAccountName" .) "default" }}
- "signals.enabled would give rights to the account `default`, which other pods use: set serviceAccount.create=true or name an account of this release's own"
{{- end }}
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.engine" -}}
{{- $version := .Values.engine.version -}}
{{- if semverCompare "<0.26.0" $version }}
- "engine.version {{ $version }} is too old: 0.28.0 is the version that is tested"
{{- else if semverCompare "~0.29.0" $version }}
- "engine.version {{ $version }} does not start with this model: take 0.28.0"
{{- end }}
{{- $reserved := tuple "--host" "--port" "--model" "--served-model-name" "--max-num-seqs" "--max-num-batched-tokens" "--max-model-len" "--gpu-memory-utilization" "--tensor-parallel-size" "-tp" "--quantization" "-q" "--renderer-num-workers" "--shutdown-timeout" "--enable-prefix-caching" "--allowed-local-media-path" "--allowed-media-domains" "--api-key" "--scheduling-policy" "--uds" -}}
{{- $p := include "hunyuan-ocr.profile" . | fromYaml -}}
{{- range concat ($p.extraArgs | default list) .Values.engine.extraArgs }}
{{- $flag := (splitList "=" .) | first | replace "_" "-" }}
{{- if has $flag $reserved }}
- "extraArgs may not hold {{ $flag }}: the chart sets it from the profile, from gpu or engine, or it would open vLLM to others"
{{- end }}
{{- if and (hasPrefix "--max-num-queued" $flag) (semverCompare "<0.30.0" $version) }}
- "extraArgs may not hold {{ $flag }}: vLLM {{ $version }} refuses it, it exists from 0.30.0 on"
{{- end }}
{{- end }}
{{- range .Values.engine.extraEnv }}
{{- if has (.name | default "") (tuple "PYTHONPATH" "VLLM_PLUGINS" "VLLM_USE_V2_MODEL_RUNNER" "VLLM_API_KEY" "HF_HUB_OFFLINE" "HOME") }}
- "engine.extraEnv may not set {{ .name }}: the chart and its launcher need it as it is"
{{- end }}
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.validate.gpu" -}}
{{- $p := include "hunyuan-ocr.profile" . | fromYaml -}}
{{- $name := .Values.gpu.profile -}}
{{- $count := int .Values.gpu.count -}}
{{- $shared := int .Values.gpu.sharing.replicas -}}
{{- if eq $p.device "cpu" }}
{{- if gt $count 1 }}
- "gpu.count {{ $count }} with profile {{ $name }}, which uses no GPU: set it to 1 or choose another profile"
{{- end }}
{{- if gt $shared 1 }}
- "gpu.sharing.replicas {{ $shared }} with profile {{ $name }}, which uses no GPU: set it to 1 or choose another profile"
{{- end }}
{{- if .Values.runtimeClassName }}
- "runtimeClassName {{ .Values.runtimeClassName }} with profile {{ $name }}, which uses no GPU: leave it empty"
{{- end }}
{{- if eq .Values.engine.image.repository "vllm/vllm-openai" }}
- "profile {{ $name }} needs vLLM's CPU build, and engine.image.repository is the GPU build: set it to the image hunyuan-ocr-engine-cpu from `make images NAMES=hunyuan-ocr-engine-cpu-0.28.0`"
{{- end }}
{{- else }}
{{- if not (and $p.gpu $p.gpuMemoryUtilization) }}
- "profile {{ $name }} has device cuda and lacks gpu or gpuMemoryUtilization: give both"
{{- else if gt (int $p.gpu.memoryMiB.min) (int $p.gpu.memoryMiB.max) }}
- "profile {{ $name }}: gpu.memoryMiB.min is above max"
{{- end }}
{{- if and (gt $count 1) (gt $shared 1) }}
- "gpu.count {{ $count }} and gpu.sharing.replicas {{ $shared }}: a pod has several GPUs or a share of one; set one of them to 1"
{{- end }}
{{- if and .Values.gpu.requireLabels .Values.affinity.nodeAffinity }}
- "affinity.nodeAffinity is set and gpu.requireLabels is true: set gpu.requireLabels=false and put the GPU's labels into your nodeAffinity"
{{- end }}
{{- range $part, $amounts := $p.resources }}
{{- if and (kindIs "map" $amounts) (hasKey $amounts $.Values.gpu.resourceName) }}
- "profile {{ $name }}: resources.{{ $part }} holds {{ $.Values.gpu.resourceName }}: set gpu.count instead"
{{- end }}
{{- end }}
{{- end }}
{{- if lt (int $p.maxModelLen) (add 64 (int (include "hunyuan-ocr.pageTokens" .))) }}
- "profile {{ $name }}: a page of pagePixels {{ int $p.pagePixels }} takes {{ include "hunyuan-ocr.pageTokens" . }} tokens and maxModelLen {{ int $p.maxModelLen }} leaves no room for an answer: lower the one or raise the other"
{{- end }}
{{- if lt (int $p.maxNumBatchedTokens) (int (include "hunyuan-ocr.pageTokens" .)) }}
- "profile {{ $name }}: a page of pagePixels {{ int $p.pagePixels }} takes {{ include "hunyuan-ocr.pageTokens" . }} tokens, more than maxNumBatchedTokens {{ int $p.maxNumBatchedTokens }}: lower the one or raise the other"
{{- end }}
{{- end }}

{{/* Visual tokens of a square page of pagePixels: cells of 32 px, one more per row, two brackets. */}}
{{- define "hunyuan-ocr.pageTokens" -}}
{{- $p := include "hunyuan-ocr.profile" . | fromYaml -}}
{{- $cells := div (int $p.pagePixels) 1024 -}}
{{- $rows := 1 -}}
{{- range until 512 -}}{{- if le (mul . .) $cells -}}{{- $rows = . -}}{{- end -}}{{- end -}}
{{ add $cells $rows 2 }}
{{- end }}

{{- define "hunyuan-ocr.validate.model" -}}
{{- $cpu := eq (include "hunyuan-ocr.device" .) "cpu" -}}
{{- with .Values.model -}}
{{- if and .path .revision }}
- "model.path and model.revision are both set: a revision is downloaded, a path is there already; keep one"
{{- end }}
{{- if not (or .path .revision) }}
{{- if $cpu }}
- "model.path is not set: name the checkpoint in the engine's image, /models/tiny-hunyuan-vl-native in hunyuan-ocr-engine-cpu"
{{- else }}
- "model.revision is not set: pin the commit to serve, for example `--set model.revision=$(git ls-remote https://huggingface.co/{{ .repository }} HEAD | cut -f1)`"
{{- end }}
{{- end }}
{{- if and .path (eq .cache "pvc") }}
- "model.path is set and model.cache is pvc, a claim that would stay empty: take existingClaim for a claim you filled, ephemeral for a folder in the image"
{{- end }}
{{- if and .path (eq .cache "existingClaim") (not (hasPrefix "/models-cache/" .path)) }}
- "model.path {{ .path }} is not on the claim: model.existingClaim is mounted at /models-cache, so the path begins with /models-cache/"
{{- end }}
{{- if and .path (ne .cache "existingClaim") (hasPrefix "/models-cache" .path) }}
- "model.path {{ .path }} lies on a claim: set model.cache=existingClaim and model.existingClaim"
{{- end }}
{{- if and (eq .cache "existingClaim") (not .existingClaim) }}
- "model.cache is existingClaim and model.existingClaim is not set: name the claim"
{{- end }}
{{- if and .existingClaim (ne .cache "existingClaim") }}
- "model.existingClaim is set and model.cache is {{ .cache }}: set model.cache=existingClaim"
{{- end }}
{{- $most := include "hunyuan-ocr.mostReplicas" $ | int }}
{{- if and (eq .cache "pvc") (gt $most 1) (ne .pvc.accessMode "ReadWriteMany") }}
- "{{ ternary "replicas" "autoscaling.maxReplicas" (eq $.Values.autoscaling.mode "none") }} {{ $most }} share one claim, and {{ .pvc.accessMode }} lets the pods of one node have it: set model.pvc.accessMode=ReadWriteMany with a storage class that has it, or model.cache=ephemeral"
{{- end }}
{{- if and .minPixels .maxPixels }}
{{- if gt (int .minPixels) (int .maxPixels) }}
- "model.minPixels is above model.maxPixels: copy both from the model's preprocessor_config.json"
{{- end }}
{{- end }}
{{- end }}
{{- end }}
