# Judge a day of the caches that lack a verdict on it. One that fails stops no other, and the job is tried again.
caches=$(cachecast caches --unjudged "$(day 2)" --json | python3 -c 'import json, sys; print(*(cache["name"] for cache in json.load(sys.stdin)))')
failed=0
for cache in $caches; do
    cachecast outcomes --cache "$cache" --day "$(day 2)" || failed=1
done
exit $failed
