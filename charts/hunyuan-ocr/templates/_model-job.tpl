{{/* The Job's spec cannot change, so the Job is named after it: a new one takes its place, and Helm
     removes the old. An ordinary object and no hook: a claim that waits for its first consumer is
     bound by it, the pods that wait for the model start beside it, and `--wait` cannot deadlock. */}}
{{- define "hunyuan-ocr.modelJobSpec" -}}
backoffLimit: 4
activeDeadlineSeconds: 7200
template:
  metadata:
    labels: {{- include "hunyuan-ocr.modelPodLabels" . | nindent 6 }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "hunyuan-ocr.serviceAccountName" . }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    securityContext: {{- include "hunyuan-ocr.podSecurityContext" . | nindent 6 }}
    {{- with .Values.imagePullSecrets }}
    imagePullSecrets: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- /* A volume may tie its pods to a node or zone: it is made where the server can run. */}}
    {{- include "hunyuan-ocr.scheduling" . | nindent 4 }}
    containers:
      - {{ include "hunyuan-ocr.modelContainer" (dict "root" . "mode" "fetch") | nindent 8 | trim }}
    volumes:
      - {{ include "hunyuan-ocr.modelVolume" . | nindent 8 | trim }}
      - {name: tmp-model, emptyDir: {sizeLimit: 1Gi}}
{{- end }}

{{- define "hunyuan-ocr.modelPodLabels" -}}
app.kubernetes.io/name: {{ include "hunyuan-ocr.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: model
{{- end }}

{{- define "hunyuan-ocr.modelJobName" -}}
{{ include "hunyuan-ocr.fullname" . }}-model-{{ include "hunyuan-ocr.modelJobSpec" . | sha256sum | trunc 8 }}
{{- end }}
