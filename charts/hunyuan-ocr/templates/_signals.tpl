{{/* The pod condition that the service writes; cluster/api.py has the same. */}}
{{- define "hunyuan-ocr.servingCondition" -}}
hunyuan-ocr.dev/serving
{{- end }}

{{/* Names of the Leases, as a YAML list: as many as pods may be out of the Service at once. The service
     counts again with the replicas there are (cluster/gate.py). */}}
{{- define "hunyuan-ocr.leaseNames" -}}
{{- $most := include "hunyuan-ocr.mostReplicas" . | int -}}
{{- range until (int (max 0 (min (div (mul $most (int .Values.signals.maxUnreadyPercent)) 100) (sub $most 1)))) }}
- {{ include "hunyuan-ocr.fullname" $ }}-unready-{{ . }}
{{- end }}
{{- end }}

{{- define "hunyuan-ocr.signalsName" -}}
{{ include "hunyuan-ocr.fullname" . }}-signals
{{- end }}

{{/* Where every client looks for it. kubelet replaces a token after four fifths of its life. */}}
{{- define "hunyuan-ocr.tokenVolume" -}}
name: token
projected:
  defaultMode: 0440
  sources:
    - serviceAccountToken: {path: token, expirationSeconds: 600}
    - configMap:
        name: kube-root-ca.crt
        items: [{key: ca.crt, path: ca.crt}]
{{- end }}
