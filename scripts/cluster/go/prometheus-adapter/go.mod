module hunyuan-ocr.test/prometheus-adapter

go 1.26.0

require sigs.k8s.io/prometheus-adapter v0.12.0
