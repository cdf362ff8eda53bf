#!/bin/sh
# Runs the guest daemon on this host as a guest would see it: the base image as root, its own processes and devices.
# usage: alone.sh DISK DAEMON DIRECTORY, inside of new mount, process and network namespaces
set -eu
disk=$1 daemon=$2 directory=$3

mount --make-rprivate /
mount -t tmpfs -o size=1g tmpfs "$directory"
cd "$directory"
mkdir image changes work root
# Nothing of this is unmounted by hand: it ends with the namespace.
mount -o loop,ro,noload "$disk" image
mount -t overlay -o lowerdir=image,upperdir=changes,workdir=work overlay root

cd root
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
for node in null zero full random urandom tty; do
    touch "dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir small
mount -t tmpfs -o size=64k,mode=1777 tmpfs small
cp "$daemon" run/daemon

# This shell stays as the first process, because orphans need somebody who reaps them.
chroot . /run/daemon daemon --listen 0.0.0.0 &
wait
