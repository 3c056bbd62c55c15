#!/bin/sh
# Creates Temporal's two databases or brings them to the schema of this release; safe to run again.
# SQL_HOST, SQL_PORT and SQL_USER say where they are; the tool reads SQL_PASSWORD itself.
set -eu

prepare() {
    database=$1
    versions=/etc/temporal/schema/postgresql/v12/$2/versioned
    set -- --plugin postgres12 --ep "$SQL_HOST" -p "$SQL_PORT" -u "$SQL_USER" --db "$database"
    temporal-sql-tool "$@" create
    temporal-sql-tool "$@" setup-schema -v 0.0
    temporal-sql-tool "$@" update-schema -d "$versions"
}

prepare temporal temporal
prepare temporal_visibility visibility
