#!/bin/sh
# Fetch what a real YARN needs beside the jars of hdfs.sh: three jars (11 MB) of Maven Central, checked by SHA-256.
# They go to ${XDG_CACHE_HOME:-~/.cache}/cachecast/yarn; what is there and right is not fetched again.
set -eu
here=$(dirname "$0")
"$here/hdfs.sh"

# SHA-256, then the path below Maven Central.
"$here/fetch-jars.sh" "${XDG_CACHE_HOME:-$HOME/.cache}/cachecast/yarn" <<'JARS'
14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce org/bouncycastle/bcprov-jdk18on/1.82/bcprov-jdk18on-1.82.jar
bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63 org/bouncycastle/bcpkix-jdk18on/1.82/bcpkix-jdk18on-1.82.jar
4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d org/bouncycastle/bcutil-jdk18on/1.82/bcutil-jdk18on-1.82.jar
JARS
