"""QEMU as a driver: `microvm` on x86-64, `virt` on arm64, under KVM or TCG."""
