{{- define "hunyuan-ocr.leastReplicas" -}}
{{ ternary .Values.replicas .Values.autoscaling.minReplicas (eq .Values.autoscaling.mode "none") | int }}
{{- end }}

{{- define "hunyuan-ocr.mostReplicas" -}}
{{ ternary .Values.replicas .Values.autoscaling.maxReplicas (eq .Values.autoscaling.mode "none") | int }}
{{- end }}

{{/* "true" where a Prometheus is to read the pods' metrics. */}}
{{- define "hunyuan-ocr.scraped" -}}
{{- if or .Values.podMonitor.enabled (ne .Values.autoscaling.mode "none") }}true{{ end -}}
{{- end }}

{{/* "true" where callers have a quota. */}}
{{- define "hunyuan-ocr.quotas" -}}
{{- with .Values.sidecar.settings }}
{{- if or .QUOTA_REQUESTS_PER_S .QUOTA_COST_PER_S }}true{{ end -}}
{{- end }}
{{- end }}

{{/* Labels of the release's series, as `podTargetLabels` brings them from the pods. */}}
{{- define "hunyuan-ocr.seriesLabels" -}}
app_kubernetes_io_name: {{ include "hunyuan-ocr.name" . }}
app_kubernetes_io_instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Offered load of all pods, averaged over a minute, since a gauge is a moment; without those that
     are gone by now, whose callers have come to the others. */}}
{{- define "hunyuan-ocr.offeredLoadQuery" -}}
{{- $series := "hunyuan_ocr_offered_load_engine_seconds_per_second" -}}
{{- $labels := include "hunyuan-ocr.seriesLabels" . | fromYaml -}}
{{- $where := printf "namespace=%q" .Release.Namespace -}}
{{- range $name, $value := $labels }}{{ $where = printf "%s,%s=%q" $where $name $value }}{{ end -}}
{{- with .Values.autoscaling.prometheus.query -}}
100 * ({{ . }})
{{- else -}}
100 * sum(avg_over_time({{ $series }}{{ "{" }}{{ $where }}{{ "}" }}[1m]) and {{ $series }})
{{- end -}}
{{- end }}

{{/* A pod takes minutes to start: at most doubled or two more within a minute, as often as the load,
     which does not depend on how many pods there are, still asks for it. */}}
{{- define "hunyuan-ocr.scalingBehavior" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  selectPolicy: Max
  policies:
    - {type: Percent, value: 100, periodSeconds: 60}
    - {type: Pods, value: 2, periodSeconds: 60}
scaleDown:
  stabilizationWindowSeconds: {{ int .Values.autoscaling.scaleDownAfterSeconds }}
  policies:
    - {type: Pods, value: 1, periodSeconds: 60}
{{- end }}

{{- define "hunyuan-ocr.replicasNote" -}}
{{- $most := include "hunyuan-ocr.mostReplicas" . -}}
{{- if eq .Values.autoscaling.mode "none" }}{{ $most }} pod(s){{ else }}{{ include "hunyuan-ocr.leastReplicas" . }} to {{ $most }} pods by {{ .Values.autoscaling.mode }}{{ end -}}
{{- end }}

{{- define "hunyuan-ocr.scalingNotes" -}}
{{- if ne .Values.autoscaling.mode "none" }}

Pods follow the offered load; what the autoscaler sees and why it does not act:

     kubectl -n {{ .Release.Namespace }} describe horizontalpodautoscaler

KEDA and prometheus-adapter serve the same API, external.metrics.k8s.io: a cluster has one of them.
When this was turned on just now, the pods are as few as one until the autoscaler has looked.
{{- end }}
{{- if and (include "hunyuan-ocr.quotas" .) (gt (include "hunyuan-ocr.mostReplicas" . | int) 1) (not (or .Values.redis.existingSecret .Values.sidecar.settings.REDIS_URL)) }}

Quotas without Redis: each pod counts its own, so a caller may have as many quotas as there are pods.
Set redis.existingSecret.
{{- end }}
{{- end }}
