#!/usr/bin/env bash
# Builds the jar of Rockmill for Java:
#   doors/java/build.sh FOLDER [BUILT]     makes FOLDER/rockmill.jar; BUILT holds librockmill_capi.so
#
# FOLDER/maven is a repository of Maven with this jar, its sources and its javadoc.
#
# The jar has Rockmill's library, the native methods, and for each version of versions.txt a shim that was compiled with
# that version's headers. Headers and RocksJava, which is compiled against, are fetched once into the user's cache folder.
# ROCKMILL_CRATES and ROCKMILL_MAVEN name mirrors of static.crates.io and repo1.maven.org. ROCKMILL_JAVA_SHIMS has the
# versions to make shims for, all without it: "7.9.2 9.7.3".
set -euo pipefail
folder=$(realpath -m "${1:?usage: doors/java/build.sh FOLDER [BUILT]}")
built=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/../.."
built=${built:-${CARGO_TARGET_DIR:-target}/release}
. doors/java/fetch.sh

[ -f "$built/librockmill_capi.so" ] || {
    echo "doors/java: $built has no librockmill_capi.so; run make build first" >&2
    exit 3
}
command -v javac >/dev/null || {
    echo "doors/java: there is no javac; install a JDK of Java 11 or newer (Debian: default-jdk-headless)" >&2
    exit 3
}
java_home=${JAVA_HOME:-$(dirname "$(dirname "$(realpath "$(command -v javac)")")")}

classes=$folder/classes native=$folder/classes/META-INF/native/linux-x86_64
rm -rf "$classes"
mkdir -p "$native" "$folder/work"
buddy=$(maven net/bytebuddy/byte-buddy/1.17.7/byte-buddy-1.17.7.jar)
# What the parts for programs compile against. None of it is in the jar.
needed=$(rocksjava 10.4.2):$buddy
for path in org/apache/kafka/kafka-streams/4.1.0/kafka-streams-4.1.0.jar org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar \
    org/apache/flink/flink-statebackend-rocksdb/2.1.0/flink-statebackend-rocksdb-2.1.0.jar \
    org/apache/flink/flink-core/2.1.0/flink-core-2.1.0.jar org/apache/flink/flink-core-api/2.1.0/flink-core-api-2.1.0.jar \
    org/apache/flink/flink-annotations/2.1.0/flink-annotations-2.1.0.jar \
    org/apache/flink/flink-metrics-core/2.1.0/flink-metrics-core-2.1.0.jar \
    org/apache/kafka/kafka-clients/4.1.0/kafka-clients-4.1.0.jar \
    io/micrometer/micrometer-core/1.15.5/micrometer-core-1.15.5.jar \
    io/micrometer/micrometer-commons/1.15.5/micrometer-commons-1.15.5.jar org/jspecify/jspecify/1.0.0/jspecify-1.0.0.jar; do
    needed=$needed:$(maven "$path")
done
find doors/java/src/main/java -name '*.java' -print0 |
    xargs -0 javac --release 11 -Xlint:all,-options,-classfile,-serial -Xdoclint:all/protected,-missing -Werror -cp "$needed" -d "$classes"
mkdir -p "$classes/META-INF/agent"
cp "$buddy" "$classes/META-INF/agent/byte-buddy.jar"

strip -o "$native/librockmill.so.2" "$built/librockmill_capi.so"
cc -O2 -fPIC -shared -Wall -Wextra -Werror -fvisibility=hidden -I include -I "$java_home/include" \
    -I "$java_home/include/linux" -o "$native/librockmill_java.so" doors/java/native/rockmill_jni.c doors/attach/attach.c \
    "$native/librockmill.so.2" -Wl,-z,nodelete -Wl,-rpath,'$ORIGIN' -ldl -lpthread
# RocksDB holds functions of both, and a JVM unloads the libraries of a class loader that goes.
for library in librockmill.so.2 librockmill_java.so; do
    dynamic=$(readelf -dW "$native/$library")
    [[ $dynamic = *NODELETE* ]] || {
        echo "doors/java: $library can be unloaded; build it with -Wl,-z,nodelete" >&2
        exit 1
    }
done

# A library of that name, for which Loader.java writes the path of RocksDB's.
place=ROCKMILL-PATH-OF-ROCKSDB-$(printf '%0999d' 0)
echo | cc -shared -x c - -o "$folder/work/place.so" "-Wl,-soname,$place"
while read -r version package; do
    [[ " ${ROCKMILL_JAVA_SHIMS:-$version} " = *" $version "* ]] || continue
    headers=$(headers "$package" "$version")
    shim=$native/rocksdb-$version.so
    # As RocksJava is compiled for Maven Central. Its functions are not there yet.
    c++ -std=c++17 -O2 -fPIC -shared -fno-rtti -D_GLIBCXX_USE_CXX11_ABI=0 -DROCKSDB_PLATFORM_POSIX -DOS_LINUX \
        -fvisibility=hidden -fvisibility-inlines-hidden -w -I include -I "$java_home/include" \
        -I "$java_home/include/linux" -isystem "$headers" -o "$shim" \
        doors/java/native/shim.cpp -Wl,--no-as-needed "$folder/work/place.so" "$native/librockmill.so.2" -ldl
    strip "$shim"
    echo "$version" >>"$native/versions"
done < <(grep -v '^#' doors/java/versions.txt)
[ -f "$native/versions" ] || {
    echo "doors/java: ROCKMILL_JAVA_SHIMS names no version of doors/java/versions.txt" >&2
    exit 2
}

cp LICENSE "$classes/META-INF/LICENSE"
inside=$folder/work/byte-buddy
mkdir -p "$inside"
(cd "$inside" && jar --extract --file "$buddy" META-INF/LICENSE META-INF/NOTICE META-INF/licenses/ASM && mv META-INF/licenses/ASM META-INF/)
scripts/licences.sh "the jar" rockmill-capi "$built/librockmill_capi.so" \
    "$inside"/META-INF/{LICENSE,NOTICE,ASM} >"$classes/META-INF/THIRD-PARTY"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
cat >"$folder/work/manifest" <<MANIFEST
Automatic-Module-Name: org.rockmill
Implementation-Title: rockmill
Implementation-Version: $version
Premain-Class: org.rockmill.agent.Agent
Agent-Class: org.rockmill.agent.Agent
Can-Retransform-Classes: true
MANIFEST
jar --create --file "$folder/rockmill.jar" --manifest "$folder/work/manifest" -C "$classes" .

rm -rf "$folder/maven" "$folder/work/javadoc"
made=$folder/maven/org/rockmill/rockmill/$version
mkdir -p "$made"
ln "$folder/rockmill.jar" "$made/rockmill-$version.jar"
jar --create --file "$made/rockmill-$version-sources.jar" -C doors/java/src/main/java .
javadoc -quiet -Xdoclint:all,-missing -Werror --release 11 -cp "$needed" -d "$folder/work/javadoc" \
    -sourcepath doors/java/src/main/java org.rockmill org.rockmill.kafka org.rockmill.flink org.rockmill.micrometer
jar --create --file "$made/rockmill-$version-javadoc.jar" -C "$folder/work/javadoc" .
cat >"$made/rockmill-$version.pom" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.rockmill</groupId>
  <artifactId>rockmill</artifactId>
  <version>$version</version>
  <name>Rockmill</name>
  <description>Does the compactions of databases of RocksJava</description>
  <licenses><license><name>Apache License, Version 2.0</name></license></licenses>
  <!-- RocksJava is the program's own, of any version that Rockmill serves. -->
</project>
POM
echo "$folder/rockmill.jar"
