#!/bin/sh
# Writes what a cluster of three NATS servers on three machines needs: sh nats-cluster.sh HOST HOST HOST
#
#   n1.conf n2.conf n3.conf       a configuration for each machine: nats-server -c n1.conf
#   publisher.env reader.env      NATS_USER and NATS_PASSWORD of a publisher and of a reader of the bucket `books`
#
# HOST is the name or IPv4 address of a machine, by which the others and the clients reach it. The hosts 127.0.0.1, 127.0.0.2
# and 127.0.0.3 try the cluster on one machine with Linux. Two variables may be set:
#
#   STORE   the folder of the stored books on each machine (default: /var/lib/nats)
#   TLS     a folder on each machine with cert.pem, key.pem and ca.pem. Without it, nothing is encrypted.
#
# Existing files are not overwritten (set -C), and only their owner can read the new ones (umask).
set -euC
umask 077
if [ $# -ne 3 ]; then
  echo 'usage: sh nats-cluster.sh HOST HOST HOST' >&2
  exit 2
fi

random() { od -A n -t x1 -N 16 /dev/urandom | tr -d ' \n'; }
publisher=$(random) reader=$(random) server=$(random)
[ ${#publisher}${#reader}${#server} = 323232 ] || { echo "no random numbers can be read" >&2; exit 1; }
printf 'NATS_USER=publisher\nNATS_PASSWORD=%s\n' "$publisher" >publisher.env
printf 'NATS_USER=reader\nNATS_PASSWORD=%s\n' "$reader" >reader.env

tls=''
if [ -n "${TLS:-}" ]; then
  tls="tls { cert_file: \"$TLS/cert.pem\", key_file: \"$TLS/key.pem\", ca_file: \"$TLS/ca.pem\" }"
fi

number=0
for host in "$@"; do
  number=$((number + 1))
  case $host in
  127.*) listen=$host monitor=$host ;; # a trial on one machine
  *) listen=0.0.0.0 monitor=127.0.0.1 ;;
  esac
  cat >"n$number.conf" <<END
server_name: n$number
listen: "$listen:4222"
client_advertise: "$host:4222"
# /healthz and the figures of the server, without a password: for programs of this machine only.
http: "$monitor:8222"
max_payload: 8MB
jetstream { store_dir: "${STORE:-/var/lib/nats}/n$number", max_file: 20GB }
$tls
cluster {
  name: books
  listen: "$listen:6222"
  cluster_advertise: "$host:6222"
  authorization { user: server, password: "$server" }
  routes: [ "nats://server:$server@$1:6222", "nats://server:$server@$2:6222", "nats://server:$server@$3:6222" ]
  $tls
}
authorization { users: [
  { user: publisher, password: "$publisher" }
  # It can read the bucket, and may not publish into it.
  { user: reader, password: "$reader", permissions: {
      publish: [ "\$JS.API.STREAM.INFO.KV_books", "\$JS.API.STREAM.MSG.GET.KV_books", "\$JS.API.DIRECT.GET.KV_books" ]
      subscribe: [ "_INBOX.>", "market-index.books" ] } }
] }
END
done
