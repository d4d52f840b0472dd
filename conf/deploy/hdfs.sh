#!/bin/sh
# Fetch what the tests start a real HDFS from: seven jars (102 MB) of Maven Central, checked by their SHA-256.
# They go to ${XDG_CACHE_HOME:-~/.cache}/cachecast/hdfs; what is there and right is not fetched again.
# MAVEN_CENTRAL names a mirror.
set -eu
here=$(dirname "$0")
"$here/system.sh" jars

# SHA-256, then the path below Maven Central.
"$here/fetch-jars.sh" "${XDG_CACHE_HOME:-$HOME/.cache}/cachecast/hdfs" <<'JARS'
cc59446ec9ebaceae56fdb8d8c21477766dc5d426325642151c796bec5c4e6b7 org/apache/hadoop/hadoop-client-api/3.5.0/hadoop-client-api-3.5.0.jar
b7db3e60c5df1cd37c2995b3e0142e57487260706834e5325bbe0a5e683eedf1 org/apache/hadoop/hadoop-client-runtime/3.5.0/hadoop-client-runtime-3.5.0.jar
06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c org/apache/hadoop/hadoop-client-minicluster/3.5.0/hadoop-client-minicluster-3.5.0.jar
66d3c980470b99b0c511dad3dfc0ae7b265ec1fb144e96bc0253a8a175fd34d9 commons-logging/commons-logging/1.3.0/commons-logging-1.3.0.jar
d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0 org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar
ae6fdd5c9547896114d5ec7fa7503733b7d2890573d3886fb548b3119c4d3f67 org/slf4j/slf4j-reload4j/1.7.36/slf4j-reload4j-1.7.36.jar
fa07aa7adedf2a65eb09007443bb60b51c725b1b5b88e481e00c529ff2d3b5b5 ch/qos/reload4j/reload4j/1.2.19/reload4j-1.2.19.jar
JARS
