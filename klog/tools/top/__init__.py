"""`klog top`: the cluster, live. Gathered here and laid out as lines of text; the command line draws them."""
