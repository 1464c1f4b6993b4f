# Functions for scripts: they print the path of what they have fetched, into the user's cache folder.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rockmill/java

sums=$(dirname "${BASH_SOURCE[0]}")/sums.txt

# fetch URL FILE: it has to have the sum of sums.txt, if its name is there.
fetch() {
    local name=${2##*/} part=$2.part.$$ sum found
    [ ! -f "$2" ] || return 0
    mkdir -p "$(dirname "$2")"
    curl --fail --silent --show-error --location --retry 3 -o "$part" "$1" || {
        rm -f "$part"
        echo "doors/java: $1 cannot be fetched" >&2
        exit 3
    }
    sum=$(awk -v name="$name" '$2 == name { print $1 }' "$sums")
    found=$(sha256sum "$part" | cut -d ' ' -f 1)
    if [ -z "$sum" ]; then
        echo "doors/java: $name has no line in doors/java/sums.txt, so it is not checked; its SHA-256 is $found" >&2
    elif [ "$sum" != "$found" ]; then
        rm -f "$part"
        echo "doors/java: $1 has the SHA-256 $found, and doors/java/sums.txt has $sum: do not use that source" >&2
        exit 3
    fi
    mv "$part" "$2"
}

# rocksjava VERSION [CLASSIFIER]
rocksjava() {
    local name=rocksdbjni-$1${2:+-$2}.jar
    maven "org/rocksdb/rocksdbjni/$1/$name"
}

# maven PATH
maven() {
    local file=$cache/maven/${1##*/}
    fetch "${ROCKMILL_MAVEN:-https://repo1.maven.org/maven2}/$1" "$file" || exit 3
    echo "$file"
}

# headers PACKAGE VERSION: where VERSION is not the one that the package ends with, its headers are the same but for the
# number.
headers() {
    local name=${1%-*} made=$cache/headers/$2 part
    [ -d "$made" ] || {
        fetch "${ROCKMILL_CRATES:-https://static.crates.io/crates}/$name/$1.crate" "$cache/$1.crate"
        mkdir -p "$cache/headers"
        part=$(mktemp -d "$cache/headers/part.XXXXXX")
        tar -xzf "$cache/$1.crate" -C "$part" --strip-components=3 --wildcards '*/rocksdb/include/*'
        local parts
        IFS=. read -ra parts <<<"$2"
        sed -i -e "s/^\(#define ROCKSDB_MAJOR\) .*/\1 ${parts[0]}/" -e "s/^\(#define ROCKSDB_MINOR\) .*/\1 ${parts[1]}/" \
            -e "s/^\(#define ROCKSDB_PATCH\) .*/\1 ${parts[2]}/" "$part/rocksdb/version.h"
        chmod 755 "$part"
        mv "$part" "$made"
        rm "$cache/$1.crate"
    }
    echo "$made"
}

# classpath NAME COORDINATES..: the files of these and what they need, with ':' between them; Maven fetches them into its own
# repository, once. COORDINATES are GROUP:ARTIFACT:VERSION.
classpath() {
    local made=$cache/classpath/$1 pom coordinates parts known
    [ ! -f "$made" ] || known=$(tr ':' '\n' <"$made" | xargs -d '\n' ls 2>/dev/null | wc -l)
    [ -f "$made" ] && [ "$known" = "$(tr ':' '\n' <"$made" | grep -c .)" ] || {
        command -v mvn >/dev/null || {
            echo "doors/java: there is no mvn; install Maven (Debian: maven)" >&2
            exit 3
        }
        pom=$(mktemp -d)
        {
            echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            echo '<groupId>org.rockmill</groupId><artifactId>systems</artifactId><version>1</version><packaging>pom</packaging>'
            [ -z "${ROCKMILL_MAVEN-}" ] ||
                echo "<repositories><repository><id>central</id><url>$ROCKMILL_MAVEN</url></repository></repositories>"
            echo '<dependencies>'
            for coordinates in "${@:2}"; do
                IFS=: read -ra parts <<<"$coordinates"
                echo "<dependency><groupId>${parts[0]}</groupId><artifactId>${parts[1]}</artifactId>"
                echo "<version>${parts[2]}</version></dependency>"
            done
            echo '</dependencies></project>'
        } >"$pom/pom.xml"
        mkdir -p "$cache/classpath"
        mvn -q -B -f "$pom/pom.xml" dependency:build-classpath -Dmdep.outputFile="$pom/path" >&2 || {
            echo "doors/java: Maven cannot fetch ${*:2}" >&2
            exit 3
        }
        mv "$pom/path" "$made"
        rm -r "$pom"
    }
    cat "$made"
}
