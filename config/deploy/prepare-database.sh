#!/bin/sh
# Prepares an empty PostgreSQL, as its superuser: the roles, the database, its extensions. The image
# of PostgreSQL runs it once, when its volume is new; elsewhere set PGHOST, PGUSER and the password
# that the application's role is to have, and run it yourself.
set -eu

: "${VERBATIM_DATABASE_PASSWORD:?is the password of the application in DATABASE_URL}"

psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --dbname=postgres \
    --username="${POSTGRES_USER:-${PGUSER:-postgres}}" <<'SQL'
\getenv password VERBATIM_DATABASE_PASSWORD
CREATE ROLE verbatim_app LOGIN PASSWORD :'password';
CREATE ROLE verbatim_operations NOLOGIN;
GRANT verbatim_operations TO verbatim_app WITH INHERIT FALSE, SET TRUE;
CREATE DATABASE verbatim OWNER verbatim_app;
\connect verbatim
CREATE EXTENSION vector;
CREATE EXTENSION btree_gin;
SQL
