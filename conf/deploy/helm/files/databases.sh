# Make a database for the journal and one for the placement service, each with an account of its own.
# The image's entrypoint reads this into its own shell, hence the parentheses.
make_database() ( # NAME PASSWORD
    psql --username postgres --set ON_ERROR_STOP=1 --set name="$1" --set password="$2" <<'SQL'
CREATE USER :"name" PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE CONNECT ON DATABASE :"name" FROM PUBLIC;
SQL
)
make_database journal "${JOURNAL_PASSWORD:?}"
make_database placement "${PLACEMENT_PASSWORD:?}"
