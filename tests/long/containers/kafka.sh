#!/bin/sh
# The stand-in's start, as apache/kafka's own: settings are variables, KAFKA_LOG_DIRS for log.dirs, and a data folder that
# is new is formatted.
set -eu
env | grep '^KAFKA_' | while IFS='=' read -r name value; do
    echo "$(echo "${name#KAFKA_}" | tr 'A-Z_' 'a-z.')=$value"
done > /tmp/server.properties
run() { exec java -Xmx512m -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.showDateTime=true -cp '/opt/kafka/libs/*' "$@"; }
(run kafka.tools.StorageTool format --ignore-formatted --cluster-id "${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}" \
    --config /tmp/server.properties)
run kafka.Kafka /tmp/server.properties
