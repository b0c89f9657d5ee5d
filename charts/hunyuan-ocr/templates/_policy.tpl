{{- define "hunyuan-ocr.egressToDns" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
    # That of DNS pods whose Service maps it, as OpenShift's.
    - {protocol: UDP, port: 5353}
    - {protocol: TCP, port: 5353}
{{- end }}

{{/* The port of an address, or that of its scheme. */}}
{{- define "hunyuan-ocr.portOfUrl" -}}
{{- $url := urlParse . -}}
{{- $ofScheme := dict "https" 443 "redis" 6379 "rediss" 6379 -}}
{{ regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (get $ofScheme $url.scheme | default 80) }}
{{- end }}

{{/* Ports that a model is downloaded from, as a YAML list. */}}
{{- define "hunyuan-ocr.downloadPorts" -}}
{{- $ports := .Values.model.download.networkPolicy.ports -}}
{{- with .Values.model.download.endpoint -}}
{{- $ports = append $ports (include "hunyuan-ocr.portOfUrl" .) -}}
{{- end -}}
{{- range $ports }}
- {{ int . }}
{{- end }}
{{- end }}

{{/* Ports that the pods may reach at any address, as a YAML list: those of what the values send them
     to. Addresses stand in Secrets and names, which a NetworkPolicy cannot hold. */}}
{{- define "hunyuan-ocr.egressPorts" -}}
{{- $ports := list -}}
{{- if or .Values.redis.existingSecret .Values.sidecar.settings.REDIS_URL -}}
{{- $ports = concat $ports .Values.networkPolicy.redisPorts -}}
{{- end -}}
{{- range list .Values.sidecar.settings.REDIS_URL .Values.sidecar.settings.OTLP_ENDPOINT | compact -}}
{{- $ports = append $ports (include "hunyuan-ocr.portOfUrl" .) -}}
{{- end -}}
{{- /* The API server, by the Service's port and by its own: some policies see the one, some the other. */ -}}
{{- if .Values.signals.enabled -}}
{{- $ports = concat $ports (list 443 6443 8443 16443) -}}
{{- end -}}
{{- if and (include "hunyuan-ocr.modelFetched" .) (not (include "hunyuan-ocr.modelJob" .)) -}}
{{- $ports = concat $ports (include "hunyuan-ocr.downloadPorts" . | fromYamlArray) -}}
{{- end -}}
{{- range $ports }}
- {{ int . }}
{{- end }}
{{- end }}
