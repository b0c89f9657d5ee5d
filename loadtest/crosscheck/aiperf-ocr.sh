#!/bin/sh
# aiperf on POST /ocr, by its template endpoint, with pages that it draws itself.
#   aiperf-ocr.sh URL FOLDER CONCURRENCY
set -eu
here=$(dirname "$0")
aiperf profile --model hunyuan-ocr --tokenizer builtin --url "$1/ocr" --endpoint-type template \
  --extra-inputs "payload_template:$here/ocr.json.j2" --extra-inputs response_field:text \
  --image-width-mean 1024 --image-height-mean 768 --image-format jpeg --synthetic-input-tokens-mean 1 \
  --concurrency "$3" --warmup-duration 5 --benchmark-duration 60 --request-timeout-seconds 60 \
  --artifact-dir "$2/aiperf-ocr-$3"
