#!/bin/sh
# aiperf on POST /ocr, by its template endpoint, with pages that it draws itself.
#   aiperf-ocr.sh URL FOLDER CONCURRENCY
set -eu
here=$(dirname "$0")
# Any will do, its counts are not used; the built-in one would be downloaded.
tokenizer=$here/../../tests/fixtures/models/tiny-hunyuan-vl-native
aiperf profile --model hunyuan-ocr --tokenizer "$tokenizer" --url "$1/ocr" --endpoint-type template \
  --extra-inputs "payload_template:$here/ocr.json.j2" --extra-inputs response_field:text \
  --image-width-mean 1024 --image-height-mean 768 --image-format jpeg --synthetic-input-tokens-mean 1 \
  --concurrency "$3" --warmup-duration 5 --benchmark-duration 60 --request-timeout-seconds 60 \
  --artifact-dir "$2/aiperf-ocr-$3"
