{{- define "hunyuan-ocr.egressToDns" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
    # That of DNS pods whose Service maps it, as OpenShift's.
    - {protocol: UDP, port: 5353}
    - {protocol: TCP, port: 5353}
{{- end }}

{{/* Ports that the pods may reach at any address, as a YAML list: those of what the values send them
     to. Addresses stand in Secrets and names, which a NetworkPolicy cannot hold. */}}
{{- define "hunyuan-ocr.egressPorts" -}}
{{- $ports := list -}}
{{- if or .Values.redis.existingSecret .Values.sidecar.settings.REDIS_URL -}}
{{- $ports = concat $ports .Values.networkPolicy.redisPorts -}}
{{- end -}}
{{- with .Values.sidecar.settings.OTLP_ENDPOINT -}}
{{- $url := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary 443 80 (eq $url.scheme "https")) -}}
{{- $ports = append $ports $port -}}
{{- end -}}
{{- /* The API server, by the Service's port and by its own: some policies see the one, some the other. */ -}}
{{- if .Values.signals.enabled -}}
{{- $ports = concat $ports (list 443 6443 8443 16443) -}}
{{- end -}}
{{- if and (include "hunyuan-ocr.modelFetched" .) (not (include "hunyuan-ocr.modelJob" .)) -}}
{{- $ports = concat $ports .Values.model.download.networkPolicy.ports -}}
{{- end -}}
{{- range $ports }}
- {{ int . }}
{{- end }}
{{- end }}
