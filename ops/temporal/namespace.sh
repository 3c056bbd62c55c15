#!/bin/sh
# Registers the namespace and the search attributes that durable's workflows set; safe to run again.
# The address and the namespace come from TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE.
set -eu

# A server that has just started, and caches that do not know a new namespace yet, need a moment.
persist() {
    tries=30
    until "$@"; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ]; then
            echo "gave up on: $*" >&2
            exit 1
        fi
        sleep 2
    done
}

persist temporal operator cluster health

# A namespace that exists keeps its retention: that is its operators' choice.
temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 30d

# One at a time: given several names, the CLI registers only the first, without an error.
for name in DurableTenant DurableWorkload DurableRegion DurablePhase DurablePendingReason; do
    persist temporal operator search-attribute create \
        --namespace "$TEMPORAL_NAMESPACE" --name "$name" --type Keyword
done
