#!/bin/sh
# Makes an authority and a certificate for each name, in pki/NAME: ca.pem, cert.pem and key.pem.
# usage: ./pki.sh [NAME ..]
set -eu
umask 077
mkdir -p pki
cd pki
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1"; }
if [ ! -e authority.key ]; then
    key authority.key
    openssl req -x509 -new -key authority.key -days 365 -subj "/CN=rockmill" -out authority.pem
fi
for name in "${@:-node1 node2 node3 client}"; do
    for one in $name; do
        mkdir -p "$one"
        key "$one/key.pem"
        openssl req -new -key "$one/key.pem" -subj "/CN=$one" -out request.pem
        printf 'subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$one" > extensions
        openssl x509 -req -in request.pem -CA authority.pem -CAkey authority.key -CAcreateserial -days 365 \
            -extfile extensions -out "$one/cert.pem"
        cp authority.pem "$one/ca.pem"
        rm request.pem extensions
    done
done
