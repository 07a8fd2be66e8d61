"""`scripts/figure3`: the deployment of the paper's Figure 3 as one running system, and the proof of what it keeps."""
