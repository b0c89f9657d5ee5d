#!/bin/bash
# PID 1 of one node: it owns the node's mount, UTS and PID namespaces and starts the node's daemons.
# When it ends, the kernel ends every process of the node, pods included.
#
# Expects NODE, ADDRESS, STATE (this node's folder), PKI (certificates), CONTROL_PLANE and NETPOL
# (1 or empty), and the binaries on PATH. Configuration files lie ready in $STATE.
set -euo pipefail

# The programs insist on these paths; each node has its own folder behind them.
mount_own() { mkdir -p "$STATE/$1" "$2"; mount --bind "$STATE/$1" "$2"; }

# The kubelet sets these for the whole machine; here it finds files that hold what it wants.
pin_sysctl() { mkdir -p "$STATE/sysctl"; echo "$2" > "$STATE/sysctl/${1//\//.}"; mount --bind "$STATE/sysctl/${1//\//.}" "/proc/sys/$1"; }

start() { local name=$1; shift; "$@" > "$STATE/log/$name.log" 2>&1 & }

# A daemon that gives up before the API server knows its node, or containerd its own plugins.
start_again() { local name=$1; shift; ( while :; do "$@" || sleep 0.5; done ) > "$STATE/log/$name.log" 2>&1 & }

await() { # SECONDS COMMAND…
  local tries=$(( $1 * 10 )); shift
  until "$@" > /dev/null 2>&1; do
    (( tries-- > 0 )) || { echo "gave up waiting for: $*" >&2; exit 1; }
    sleep 0.1
  done
}

prepare() {
  hostname "$NODE"
  ip link set lo up
  mkdir -p "$STATE"/{etcd,containerd-state,pod-logs}
  mount_own kubelet /var/lib/kubelet
  mount_own container-logs /var/log/containers
  mount_own cni-state /var/lib/cni
  mount_own run-containerd /run/containerd
  mount_own volumes /tmp/hostpath_pv
  mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns # pods' namespaces, apart from the machine's
  for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    pin_sysctl "${pair%%=*}" "${pair##*=}"
  done
  mount --make-rshared /
  sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 net.ipv4.conf.all.route_localnet=1
  for controller in cpu cpuacct cpuset memory pids devices freezer blkio systemd; do
    mkdir -p "/sys/fs/cgroup/$controller/$CGROUP"
  done
  for file in cpuset.cpus cpuset.mems; do # a new cpuset is empty and takes no process
    cat "/sys/fs/cgroup/cpuset/$file" > "/sys/fs/cgroup/cpuset/$CGROUP/$file"
  done
}

api_answers() { curl -sf --cacert "$PKI/ca.crt" --cert "$PKI/admin.crt" --key "$PKI/admin.key" "$API/readyz"; }

start_api() {
  start etcd etcd --name "$NODE" --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn
  start kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --bind-address=0.0.0.0 --advertise-address="$ADDRESS" --secure-port=6443 \
    --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --client-ca-file="$PKI/ca.crt" --allow-privileged=true \
    --kubelet-client-certificate="$PKI/admin.crt" --kubelet-client-key="$PKI/admin.key" \
    --kubelet-preferred-address-types=InternalIP --service-cluster-ip-range=10.96.0.0/16 \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$PKI/service-accounts.pub" \
    --service-account-signing-key-file="$PKI/service-accounts.key" \
    --requestheader-client-ca-file="$PKI/ca.crt" --requestheader-allowed-names=front-proxy \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- --enable-aggregator-routing=true \
    --proxy-client-cert-file="$PKI/front-proxy.crt" --proxy-client-key-file="$PKI/front-proxy.key" \
    --default-not-ready-toleration-seconds=5 --default-unreachable-toleration-seconds=5
}

start_controllers() { # with short periods: tests wait for what they do
  start kube-controller-manager kube-controller-manager --leader-elect=false \
    --kubeconfig="$PKI/admin.kubeconfig" --authentication-kubeconfig="$PKI/admin.kubeconfig" \
    --authorization-kubeconfig="$PKI/admin.kubeconfig" --use-service-account-credentials=true \
    --service-account-private-key-file="$PKI/service-accounts.key" --root-ca-file="$PKI/ca.crt" \
    --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
    --horizontal-pod-autoscaler-sync-period=5s \
    --horizontal-pod-autoscaler-downscale-stabilization=10s \
    --horizontal-pod-autoscaler-initial-readiness-delay=5s \
    --horizontal-pod-autoscaler-cpu-initialization-period=10s \
    --node-monitor-period=1s --node-monitor-grace-period=10s \
    --node-eviction-rate=10 --secondary-node-eviction-rate=10 --enable-hostpath-provisioner=true
  start kube-scheduler kube-scheduler --leader-elect=false --kubeconfig="$PKI/admin.kubeconfig" \
    --authentication-kubeconfig="$PKI/admin.kubeconfig" \
    --authorization-kubeconfig="$PKI/admin.kubeconfig"
}

prepare
[[ -z $CONTROL_PLANE ]] || start_api
start containerd containerd --config "$STATE/containerd.toml"
await 30 ctr -a "$STATE/containerd.sock" version
await 90 api_answers
[[ -z $CONTROL_PLANE ]] || start_controllers
start_again kubelet kubelet --config="$STATE/kubelet.yaml" --kubeconfig="$PKI/$NODE.kubeconfig" \
  --hostname-override="$NODE" --node-ip="$ADDRESS" --node-labels="topology.kubernetes.io/zone=zone-$NODE"
start kube-proxy kube-proxy --config="$STATE/kube-proxy.yaml"
[[ -z $NETPOL ]] || start_again kube-router kube-router --kubeconfig="$PKI/admin.kubeconfig" \
  --hostname-override="$NODE" --run-router=false --run-firewall=true --run-service-proxy=false \
  --service-cluster-ip-range=10.96.0.0/16 --health-port=0

set +e
while :; do wait -n; sleep 1; done # reap what daemons leave behind
