# A run is a moment: --as-of is when the job was due, which its name ends with in minutes, however late it starts.
set -eu
at_s=$((${JOB_NAME##*-} * 60))
at_s=$((at_s - at_s % CYCLE_S))
as_of=$(date -u -d "@$at_s" +%Y-%m-%dT%H:%M:%SZ)
day() { date -u -d "@$((at_s - $1 * 86400))" +%Y-%m-%d; } # so many days before
due() { # COMMAND...: end the job where it says that it is not due, by exit code 99
    "$@" || { code=$?; [ "$code" != 99 ] || exit 0; exit "$code"; }
}
