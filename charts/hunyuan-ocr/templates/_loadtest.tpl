{{/* The Job's spec cannot change, so the Job is named after it: other values make another. */}}
{{- define "hunyuan-ocr.loadtestJobName" -}}
{{ include "hunyuan-ocr.fullname" . | trunc 44 | trimSuffix "-" }}-loadtest-{{ include "hunyuan-ocr.loadtestJobSpec" . | sha256sum | trunc 8 }}
{{- end }}

{{- define "hunyuan-ocr.loadtestPodLabels" -}}
app.kubernetes.io/name: {{ include "hunyuan-ocr.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: loadtest
{{- end }}

{{- define "hunyuan-ocr.loadtestJobSpec" -}}
# A run that was cut off says nothing when it is begun anew.
backoffLimit: 0
activeDeadlineSeconds: {{ int .Values.loadtest.deadlineSeconds }}
template:
  metadata:
    labels: {{- include "hunyuan-ocr.loadtestPodLabels" . | nindent 6 }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "hunyuan-ocr.serviceAccountName" . }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    securityContext: {{- include "hunyuan-ocr.podSecurityContext" . | nindent 6 }}
    {{- with .Values.imagePullSecrets }}
    imagePullSecrets: {{- toYaml . | nindent 6 }}
    {{- end }}
    # Callers do not share the server's cores: away from GPUs, and where it can from every server.
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
            - matchExpressions:
                - {key: nvidia.com/gpu.product, operator: DoesNotExist}
                - {key: nvidia.com/gpu.present, operator: DoesNotExist}
      podAntiAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {{- include "hunyuan-ocr.selectorLabels" . | nindent 18 }}
    containers:
      - name: loadtest
        image: {{ include "hunyuan-ocr.image" . }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        command: [hunyuan-ocr-loadtest]
        args:
          - {{ .Values.loadtest.command }}
          - http://{{ include "hunyuan-ocr.fullname" . }}:{{ int .Values.service.port }}
          - --output=/tmp/results
          - --json
          - --wait={{ int .Values.engine.startTimeoutSeconds }}
          {{- range .Values.loadtest.args }}
          - {{ . | quote }}
          {{- end }}
        env:
          - {name: HOME, value: /tmp}
          {{- with .Values.test.keySecret }}
          {{- if .name }}
          - name: HYOCR_API_KEY
            valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
          {{- end }}
          {{- end }}
        resources: {{- toYaml .Values.loadtest.resources | nindent 10 }}
        securityContext: {{- include "hunyuan-ocr.containerSecurityContext" (dict "readOnly" true) | nindent 10 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
    volumes:
      - {name: tmp, emptyDir: {sizeLimit: 1Gi}}
{{- end }}
