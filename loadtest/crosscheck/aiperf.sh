#!/bin/sh
# aiperf on the chat route, in closed loop, with the very bodies that the kit sends.
#   aiperf.sh URL FOLDER CONCURRENCY     FOLDER: of `python -m loadtest.crosscheck.payloads`
set -eu
# Any will do, its counts are not used; the built-in one would be downloaded.
tokenizer=$(dirname "$0")/../../tests/fixtures/models/tiny-hunyuan-vl-native
aiperf profile --model hunyuan-ocr --tokenizer "$tokenizer" --url "$1" --endpoint-type chat \
  --input-file "$2/chat.jsonl" --custom-dataset-type raw_payload --dataset-sampling-strategy sequential \
  --concurrency "$3" --warmup-duration 5 --benchmark-duration 60 --request-timeout-seconds 60 \
  --artifact-dir "$2/aiperf-$3"
