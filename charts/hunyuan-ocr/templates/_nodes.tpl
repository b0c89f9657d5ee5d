{{/* What the nodes lack for a pod to be scheduled. The name of the template with the lookup stands in
     Helm's message when the right to list nodes is missing. */}}
{{- define "hunyuan-ocr.nodeNotes" -}}
{{- $gpu := (include "hunyuan-ocr.profile" . | fromYaml).gpu -}}
{{- $resource := .Values.gpu.resourceName -}}
{{- $products := include "hunyuan-ocr.gpuProducts" . | fromYamlArray }}

Needed on the nodes: NVIDIA's device plugin, which advertises {{ $resource }}
{{- if .Values.gpu.requireLabels }}, and GPU feature discovery,
which labels them nvidia.com/gpu.product={{ join "|" $products }}
and nvidia.com/gpu.memory={{ int $gpu.memoryMiB.min }}..{{ int $gpu.memoryMiB.max }}{{ end }}.
{{- if .Values.gpu.checkNodes -}}
{{- $found := dict -}}
{{- include "without the right to list nodes, set gpu.checkNodes=false" $found -}}
{{- $nodes := $found.items -}}
{{- if $nodes -}}
{{- $advertising := 0 }}{{ $labelled := 0 }}{{ $named := 0 }}{{ $fitting := 0 }}{{ $seen := list -}}
{{- range $nodes -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $offers := ge (int (get (.status.allocatable | default dict) $resource)) (int $.Values.gpu.count) -}}
{{- $product := get $labels "nvidia.com/gpu.product" -}}
{{- $memory := int (get $labels "nvidia.com/gpu.memory") -}}
{{- $inRange := and (ge $memory (int $gpu.memoryMiB.min)) (le $memory (int $gpu.memoryMiB.max)) -}}
{{- if $offers }}{{ $advertising = add1 $advertising }}{{ end -}}
{{- if $product }}{{ $labelled = add1 $labelled }}{{ $seen = append $seen (printf "%s (%d MiB)" $product $memory) }}{{ end -}}
{{- if has $product $products }}{{ $named = add1 $named }}{{ end -}}
{{- if and $offers (or (not $.Values.gpu.requireLabels) (and (has $product $products) $inRange)) }}{{ $fitting = add1 $fitting }}{{ end -}}
{{- end }}
{{- if $fitting }}
{{ $fitting }} of {{ len $nodes }} nodes fit.
{{- else }}

WARNING: NO NODE FITS, the pods will stay Pending.
{{- if not $advertising }}
- No node offers {{ int .Values.gpu.count }} x {{ $resource }}: is the device plugin running, is gpu.count too
  large, or does the plugin rename shared GPUs (gpu.resourceName)?
{{- end }}
{{- if .Values.gpu.requireLabels }}
{{- if not $labelled }}
- No node has the label nvidia.com/gpu.product: is GPU feature discovery running? Without it set
  gpu.requireLabels=false.
{{- else if not $named }}
- Label nvidia.com/gpu.product is {{ $seen | uniq | sortAlpha | join ", " }}: choose another
  gpu.profile, or set profiles.{{ .Values.gpu.profile }}.gpu.products{{ if gt (int .Values.gpu.sharing.replicas) 1 }}; -SHARED appears once time-slicing is
  set up in the device plugin{{ end }}.
{{- else }}
- Label nvidia.com/gpu.product fits, nvidia.com/gpu.memory does not, or not on the same node:
  {{ $seen | uniq | sortAlpha | join ", " }}; see profiles.{{ .Values.gpu.profile }}.gpu.memoryMiB.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "without the right to list nodes, set gpu.checkNodes=false" -}}
{{- $_ := set . "items" (lookup "v1" "Node" "" "").items -}}
{{- end }}
