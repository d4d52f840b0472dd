#!/bin/sh
# Install the system packages that cachecast needs: `system.sh core` (Java 17, a Python with venv, OpenMP),
# `system.sh xrootd` (a real XRootD server), `system.sh xrootd-build` (what xrootd.sh compiles another one with),
# `system.sh browser` (Chromium, which the tests open pages in), `system.sh arc` (a real A-REX, and its client),
# `system.sh jars` (what hdfs.sh and rucio.sh fetch jars with), `system.sh postgresql` (a real PostgreSQL server),
# `system.sh prometheus` (promtool and systemd-analyze, which check what conf/deploy holds),
# `system.sh containers` (bubblewrap, which bench/pods.py runs the chart's pods in),
# `system.sh bench` (wrk, for bench/serve.py).
# Does nothing for what is there. Needs root or sudo for the rest.
set -eu

missing=""
want() { # PACKAGE TEST...: note the package if the test fails
    package=$1; shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
has_lib() { /sbin/ldconfig -p | grep -q "$1"; }
has_postgres() { ls /usr/lib/postgresql/*/bin/initdb; }
has_python() { "$(dirname "$0")/find-python.sh"; }

case "${1:-}" in
core)
    want openjdk-17-jre-headless java -version
    want python3-venv has_python
    want libgomp1 has_lib libgomp.so.1
    ;;
xrootd)
    want xrootd-server command -v xrootd
    want xrootd-server-plugins has_lib libXrdPfc
    want xrootd-client command -v xrdcp
    want xrootd-client-plugins has_lib libXrdPss
    want xrootd-scitokens-plugins has_lib libXrdAccSciTokens
    want xrootd-voms-plugins has_lib libXrdVoms
    want voms-clients command -v voms-proxy-fake
    want gcc command -v cc  # tests shift a server's clock by a preloaded library
    want libc6-dev test -e /usr/include/dlfcn.h
    ;;
xrootd-build)
    want cmake command -v cmake
    want make command -v make
    want g++ command -v c++
    want libssl-dev test -e /usr/include/openssl/ssl.h
    want uuid-dev test -e /usr/include/uuid/uuid.h
    want zlib1g-dev test -e /usr/include/zlib.h
    ;;
browser)
    want chromium command -v chromium
    ;;
arc)
    want nordugrid-arc-arex test -x /usr/share/arc/arc-arex-ws-start
    want nordugrid-arc-client command -v arcsub
    want nordugrid-arc-plugins-arcrest test -e /usr/lib/arc/libaccARCREST.so
    want nordugrid-arc-plugins-xrootd test -e /usr/lib/arc/external/libdmcxrootd.so
    ;;
jars)
    want curl command -v curl
    want ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
    want coreutils command -v sha256sum
    ;;
postgresql)
    want postgresql has_postgres
    ;;
prometheus)
    want prometheus command -v promtool
    want systemd command -v systemd-analyze
    ;;
containers)
    want bubblewrap command -v bwrap
    want util-linux command -v unshare
    want iproute2 command -v ip
    ;;
bench)
    want wrk command -v wrk
    ;;
*)
    echo "usage: system.sh core|xrootd|xrootd-build|browser|arc|jars|postgresql|prometheus|containers|bench" >&2
    exit 2
    ;;
esac
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then as_root=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root="sudo -n"
else
    echo "missing:$missing. Install with: sudo apt-get install -y$missing" >&2
    exit 1
fi
command -v apt-get >/dev/null || { echo "missing:$missing, and there is no apt-get here" >&2; exit 1; }
echo "installing$missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086 # one word per package
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
