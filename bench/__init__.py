"""klog measured beside its peers: the same client programs, one run, alternating rounds (see bench/README.md)."""
